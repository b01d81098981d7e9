"""C++ host code of CUDA extensions, built in under a second: against a thin header, separately from the device code.

`request` is what a file asks torch for, and `options` tells which of its options may bring code that nobody reads.
`build` is the fast build: `flags` sorts its options, `compiler` runs the host compiler, `stubs` finds the kernels that
the library launches. `full` builds with torch's own headers instead, which `torch_extension` imports. `symbols` finds
the functions that a library takes from others, of which `c_functions` tells what those of C are for.
"""
