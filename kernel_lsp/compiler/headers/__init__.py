"""Headers of a CUDA file, found and read without a compiler.

`user` finds the user's own, `project` the folders of those that no option names, `includers` the files that include
this one, `definitions` macros of build files. `bare` cuts all that no device code mentions. `prelude` replaces host
headers for NVRTC, and `bundled` unpacks NVRTC's own.
"""
