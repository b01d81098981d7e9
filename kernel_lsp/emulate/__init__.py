"""Kernels run on the CPU: the PTX of the real compiler, many threads at once, every memory access checked.

`ptx.load` reads a module, `memory.GlobalMemory` holds what it may reach, `machine.run` executes one launch.
"""
