"""Reads cubins and the machine code (SASS) in them.

`binary` has the records. `elf` reads images, `cubin` each kernel's resources and digest, `lines` the line table,
`symbols` kernels' names. `sass` joins the listing of `nvdisasm` with lines, `flow` (loops) and `opcodes` (kinds of
instructions). `occupancy` computes what resources leave room for.
"""
