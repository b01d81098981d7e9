"""`ldmatrix`, `stmatrix` and `movmatrix`: 8 x 8 matrices of 16-bit elements, whose rows are 16 bytes in shared memory.

Worker-only: imports numpy. Lane 8i + j names row j of matrix i; a lane's register i holds elements 2t and 2t + 1 of row
g of matrix i, or of column g with `.trans`, where g = lane / 4 and t = lane % 4.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.matrix.fragments import WARP
from kernel_lsp.emulate.matrix.operation import MatrixAccess, MatrixOperation

Bits: TypeAlias = NDArray[Any]

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_ROW = 16


def bind(opcode: str) -> MatrixAccess | MatrixOperation | None:
    """Return the operation of an opcode such as `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16`; None for any
    other.
    """
    match opcode.split("."):
        case ["movmatrix", "sync", "aligned", "m8n8", "trans", "b16"]:
            return MatrixOperation(_transpose)
        case [("ldmatrix" | "stmatrix") as name, "sync", "aligned", *words, "b16"] if "m8n8" in words:
            # ptxas takes shape, count and `.trans` in any order, and code makes use of that.
            counts = [_COUNTS[word] for word in words if word in _COUNTS]
            spaces = [word for word in words if word not in ("m8n8", "trans", *_COUNTS)]
            if len(counts) != 1 or spaces not in ([], ["shared"], ["shared::cta"]):
                return None
            return _access(name == "stmatrix", counts[0], "trans" in words, "shared" if spaces else "")
        case _:
            return None


def _access(store: bool, count: int, transposed: bool, space: str) -> MatrixAccess:
    def registers(data: Bits) -> tuple[Bits, ...]:
        """Return the rows' bytes (lanes, 1, 16) as `count` registers."""
        rows = np.ascontiguousarray(data).view("<u2").reshape(-1, 4, 8, 8)[:, :count]
        return _pairs(rows.swapaxes(2, 3) if transposed else rows)

    def data(*registers: Bits) -> Bits:
        matrices = _matrices(registers)
        rows = np.zeros((len(matrices), 4, 8, 8), np.uint16)
        rows[:, :count] = matrices.swapaxes(2, 3) if transposed else matrices
        return rows.view(np.uint8).reshape(-1, 1, _ROW)

    def addresses(address: Bits, stride: Bits | None) -> Bits:
        return address[:, None]

    return MatrixAccess(store, space, _ROW, 1, np.arange(WARP) < 8 * count, addresses, registers, data)


def _transpose(active: Bits, registers: tuple[Bits, ...]) -> tuple[Bits, ...]:
    return _pairs(_matrices(registers).swapaxes(2, 3))


def _pairs(matrices: Bits) -> tuple[Bits, ...]:
    """Return (warps, matrices, 8, 8) elements as one register of two row neighbours for each matrix."""
    words = np.ascontiguousarray(matrices).view("<u4").reshape(len(matrices), -1, WARP)
    return tuple(np.ascontiguousarray(words[:, i]).reshape(-1) for i in range(words.shape[1]))


def _matrices(registers: tuple[Bits, ...]) -> Bits:
    """Return the matrices of registers: the reverse of `_pairs`."""
    words = np.stack([register.astype(np.uint32, copy=False).reshape(-1, WARP) for register in registers], axis=1)
    return words.view("<u2").reshape(len(words), -1, 8, 8)
