"""Registers that hold several values side by side, the first one lowest."""

from collections.abc import Callable

import numpy as np

from kernel_lsp.emulate.arithmetic.opcode import UNSIGNED
from kernel_lsp.emulate.arithmetic.operation import Array


def split(x: Array, bits: int) -> Array:
    """Raw registers of shape (n,) as their elements of so many bits, of shape (n, elements)."""
    return np.ascontiguousarray(x).reshape(*x.shape, 1).view(np.dtype(f"u{bits // 8}"))


def join(elements: Array, bits: int) -> Array:
    """Elements of shape (n, elements) as raw registers of so many bits, of shape (n,)."""
    return np.ascontiguousarray(elements).view(np.dtype(f"u{bits // 8}"))[..., 0].astype(UNSIGNED[bits], copy=False)


def lanewise(run: Callable[..., Array], bits: int) -> Callable[..., Array]:
    """A function of raw elements of 16 or 32 bits as one of the registers that hold two of them."""

    def packed(*operands: Array) -> Array:
        return join(run(*(split(x, bits) for x in operands)), 2 * bits)

    return packed
