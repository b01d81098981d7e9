"""Compiles source to machine code, and reads resources, instructions and messages from it, by line.

Each subject has a folder. `cuda` and `triton` compile a language's device code, `host` an extension's host code beside
it; user code that runs meanwhile takes `fakes` for a GPU. `builds` has the records of the outcome. `headers` finds
what a file includes, `ptx` and `machine_code` read what compilers write, `toolchain` finds compilers and tools. Imports
run in the order host, cuda, triton, fakes, builds, headers, ptx, machine_code, toolchain, never back; `language`, the
protocol that languages answer, uses none of them.
"""
