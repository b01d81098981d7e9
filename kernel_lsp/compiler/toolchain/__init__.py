"""Finds compilers and tools on this machine, chooses their targets, and keeps the files that they make.

`toolkit` locates programs, libraries and headers, `tools` asks for their versions. `target` chooses `sm_90` or
`sm_90a`, `emulated` the architecture for a kernel on the emulator. `file_cache` keeps files by a hash of their inputs.
"""
