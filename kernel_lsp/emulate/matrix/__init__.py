"""Tensor cores: `mma.sync`, `wmma`, and the instructions that move their fragments.

Worker-only: imports numpy.
"""

from functools import cache

from kernel_lsp.emulate.matrix import ldmatrix, mma, wmma
from kernel_lsp.emulate.matrix.operation import MatrixAccess, MatrixOperation

__all__ = ["MatrixAccess", "MatrixOperation", "bind"]


@cache
def bind(opcode: str, arch: int = 90) -> MatrixAccess | MatrixOperation | None:
    """Return the operation of a matrix instruction; None if it is not emulated.

    Args:
        opcode: the instruction's name with all its modifiers, such as
            `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`.
        arch: the architecture whose sums it gives, 90 for sm_90.
    """
    return ldmatrix.bind(opcode) or mma.bind(opcode, arch) or wmma.bind(opcode, arch)
