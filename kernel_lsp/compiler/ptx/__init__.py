"""Reads, changes and assembles PTX.

`lines` tells each instruction's place in the source, `local_memory` whose local memory a kernel uses, and `ptxas` what
the assembler prints. `tensor_memory` tells how much of Blackwell's a kernel allocates. `left_out` makes PTX that lacks
a line's work, and `assembler` assembles it.
"""
