"""Registers with several packed values, the first one lowest."""

from collections.abc import Callable

import numpy as np

from kernel_lsp.emulate.arithmetic.opcode import UNSIGNED
from kernel_lsp.emulate.arithmetic.operation import Array


def split(x: Array, bits: int) -> Array:
    """Return raw registers of shape (n,) split into elements of `bits` bits, of shape (n, elements)."""
    return np.ascontiguousarray(x).reshape(*x.shape, 1).view(np.dtype(f"u{bits // 8}"))


def join(elements: Array, bits: int) -> Array:
    """Return elements of shape (n, elements) joined into raw registers, each element `bits` bits wide, of shape
    (n,).
    """
    return np.ascontiguousarray(elements).view(np.dtype(f"u{bits // 8}"))[..., 0].astype(UNSIGNED[bits], copy=False)


def lanewise(run: Callable[..., Array], bits: int) -> Callable[..., Array]:
    """Return a function of raw elements of 16 or 32 bits as one of registers that hold two of them."""

    def packed(*operands: Array) -> Array:
        return join(run(*(split(x, bits) for x in operands)), 2 * bits)

    return packed
