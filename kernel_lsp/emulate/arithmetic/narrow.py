"""The formats of 4 to 8 bits: OCP FP8 (e4m3, e5m2), FP6 (e2m3, e3m2), FP4 (e2m1) and the scale ue8m0.

Each signed format has at most 128 positive numbers, so they are tables: codes in rising order of their values.
"""

from functools import cache

import numpy as np

from kernel_lsp.emulate.arithmetic.operation import Array

_SHAPES = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e2m1": (2, 1, 1)}
_FINITE_CODES = {"e4m3": 0x7F, "e5m2": 0x7C, "e2m3": 0x20, "e3m2": 0x20, "e2m1": 0x08}
"""Number of codes, from zero up, that are finite numbers."""

NAMES = (*_SHAPES, "ue8m0")


@cache
def values(name: str) -> Array:
    """Return float64 values of all codes of a format, the sign bit included; NaN and infinities where it has them."""
    if name == "ue8m0":
        return np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan)
    exponent_bits, mantissa_bits, bias = _SHAPES[name]
    codes = np.arange(1 << (exponent_bits + mantissa_bits))
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    normal = exponent > 0
    size = np.ldexp(mantissa + (normal << mantissa_bits), np.maximum(exponent, 1) - bias - mantissa_bits)
    finite = codes < _FINITE_CODES[name]
    infinity = (codes == 0x7C) & (name == "e5m2")
    size = np.where(finite, size, np.where(infinity, np.inf, np.nan))
    return np.concatenate([size, -size])


def decode(codes: Array, name: str) -> Array:
    """Return raw codes as float64; bits above the format's own are ignored."""
    table = values(name)
    return table[codes & (len(table) - 1)]


def encode(numbers: Array, name: str) -> Array:
    """Return float64 numbers as codes, rounded to nearest even and clamped to the finite range; uint8.

    NaN becomes the format's NaN, or its largest number where it has none.
    """
    finite = values(name)[: _FINITE_CODES[name]]
    midpoints = (finite[1:] + finite[:-1]) / 2
    size = np.abs(numbers)
    index = np.searchsorted(midpoints, size, side="left")
    tie = (index < len(midpoints)) & (size == midpoints[np.minimum(index, len(midpoints) - 1)])
    index = index + (tie & (index % 2 == 1))
    sign_bit = len(values(name)) // 2
    nan = 0x7F if name in ("e4m3", "e5m2") else len(finite) - 1
    return np.where(np.isnan(numbers), nan, index + np.signbit(numbers) * sign_bit).astype(np.uint8)


def encode_scale(numbers: Array, mode: str, saturates: bool) -> Array:
    """Return float64 numbers as ue8m0 codes, rounded towards zero (`rz`) or infinity (`rp`); uint8.

    The sign is ignored. NaN is 0xFF, and so is a number that is too large, unless it saturates to 0xFE.
    """
    size = np.abs(numbers)
    fraction, exponent = np.frexp(size)
    code = exponent + 126 + ((fraction > 0.5) if mode == "rp" else 0)
    code = np.where(size == 0, 0, np.where(np.isfinite(size), np.maximum(code, 0), 255))
    limited = np.minimum(code, 254 if saturates else 255)
    return np.where(np.isnan(numbers), 255, limited).astype(np.uint8)
