"""Where the elements of a matrix lie in the registers of a warp.

Worker-only: imports numpy. One formula covers every dense fragment of `mma.sync` in the PTX ISA ("Matrix Fragments for
mma.m8n8k4" to "... mma.m16n8k256"). With g = lane / 4, t = lane % 4 and e elements in a register, element j of register
r is at

- A (M x K): row g + 8 (r mod M/8), column 4e (r div M/8) + te + j
- B (K x N): row 4e (r mod K/4e) + te + j, column g + 8 (r div K/4e)
- C, D (M x N): element i at row g + 8 (i/2 mod M/8), column 8 (i/2 div M/8) + 2t + i mod 2

`wmma` has larger shapes, for which the same formula goes on; the ISA leaves its fragments opaque. All fragments of one
shape and use whose elements have one size share a layout, and so do accumulators of every type, as code expects that
works on `fragment.x` element by element.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bits: TypeAlias = NDArray[Any]

WARP = 32
_GROUP, _THREAD = np.divmod(np.arange(WARP)[:, None], 4)


@dataclass(frozen=True, eq=False)
class Fragment:
    """The layout of one matrix in registers.

    Attributes:
        rows: of the matrix.
        columns: of the matrix.
        bits: of one element.
        register: bits of one register, 32 or 64.
        place: (32, elements), the row-major index of each lane's elements, lowest bits of the first register first.
    """

    rows: int
    columns: int
    bits: int
    register: int
    place: NDArray[np.intp]

    @property
    def registers(self) -> int:
        """Return registers of one lane."""
        return self.place.shape[1] * self.bits // self.register

    @property
    def source(self) -> NDArray[np.intp]:
        """Return for each element of the matrix, row-major, the first place among all lanes' elements that holds it."""
        return np.unique(self.place, return_index=True)[1]

    def gather(self, registers: tuple[Bits, ...]) -> Bits:
        """Return matrices (warps, rows, columns) of raw elements from registers of (lanes,)."""
        words = np.stack(registers, axis=-1).astype(np.dtype(f"u{self.register // 8}"), copy=False)
        words = words.reshape(-1, WARP, len(registers))
        if self.bits >= 8:
            elements = words.view(np.dtype(f"u{self.bits // 8}"))
        else:
            shifts = np.arange(0, self.register, self.bits, dtype=np.uint32)
            elements = (words[..., None] >> shifts & np.uint32((1 << self.bits) - 1)).astype(np.uint8)
        warps = words.shape[0]
        return elements.reshape(warps, -1)[:, self.source].reshape(warps, self.rows, self.columns)

    def scatter(self, matrices: Bits) -> tuple[Bits, ...]:
        """Return registers of (lanes,) from matrices (warps, rows, columns) of raw elements of 8 bits or more."""
        elements = matrices.reshape(len(matrices), -1)[:, self.place.reshape(-1)].reshape(len(matrices) * WARP, -1)
        words = np.ascontiguousarray(elements).view(np.dtype(f"u{self.register // 8}"))
        return tuple(np.ascontiguousarray(words[:, register]) for register in range(words.shape[1]))


@cache
def multiplicand_a(m: int, k: int, bits: int, registers: int | None = None) -> Fragment:
    """Return the fragment of A. With more `registers` than the matrix fills, its elements repeat."""
    register, each, count = _sizes(m * k, bits, registers)
    tiles, columns = m // 8, k // (4 * each)
    r, j = np.divmod(np.arange(count * each)[None, :], each)
    row = _GROUP + 8 * (r % tiles)
    column = 4 * each * (r // tiles % columns) + _THREAD * each + j
    return Fragment(m, k, bits, register, row * k + column)


@cache
def multiplicand_b(k: int, n: int, bits: int, registers: int | None = None) -> Fragment:
    """Return the fragment of B. With more `registers` than the matrix fills, its elements repeat."""
    register, each, count = _sizes(k * n, bits, registers)
    rows = k // (4 * each)
    r, j = np.divmod(np.arange(count * each)[None, :], each)
    row = 4 * each * (r % rows) + _THREAD * each + j
    column = _GROUP + 8 * (r // rows % (n // 8))
    return Fragment(k, n, bits, register, row * n + column)


@cache
def accumulator(m: int, n: int, bits: int) -> Fragment:
    """Return the fragment of C and D."""
    pair, low = np.divmod(np.arange(m * n // WARP)[None, :], 2)
    row = _GROUP + 8 * (pair % (m // 8))
    column = 8 * (pair // (m // 8)) + 2 * _THREAD + low
    return Fragment(m, n, bits, max(bits, 32), row * n + column)


def _sizes(elements: int, bits: int, registers: int | None) -> tuple[int, int, int]:
    """Return bits of a register, elements in one, and the number of registers."""
    register = max(bits, 32)
    return register, register // bits, registers or elements * bits // (register * WARP)
