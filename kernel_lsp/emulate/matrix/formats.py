"""The values of the tensor cores' element types, and sums as the bits of an accumulator's type.

Worker-only: imports numpy.
"""

from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bits: TypeAlias = NDArray[Any]
Values: TypeAlias = NDArray[np.float64]

BITS = {"f64": 64, "tf32": 32, "f32": 32, "s32": 32, "f16": 16, "bf16": 16} | {
    **dict.fromkeys(("e4m3", "e5m2", "s8", "u8"), 8),
    **dict.fromkeys(("s4", "u4"), 4),
    "b1": 1,
}
SMALLEST_EXPONENT = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}


def values(kind: str, bits: Bits) -> Values:
    """Return the values of raw elements of a type; all types fit float64 exactly."""
    match kind:
        case "f64":
            return bits.view(np.float64)
        case "f16" | "f32":
            return _wide(bits.view(np.float16 if kind == "f16" else np.float32))
        case "tf32":
            return _wide((bits & np.uint32(0xFFFFE000)).view(np.float32))
        case "bf16":
            return _wide((bits.astype(np.uint32) << 16).view(np.float32))
        case "s8" | "u8" | "b1":
            return bits.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)
        case "s4":
            return ((bits.astype(np.int8) ^ 8) - 8).astype(np.float64)
        case "u4":
            return bits.astype(np.float64)
        case _:
            return _of_byte(kind)[bits]


def _wide(x: NDArray[Any]) -> Values:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return x.astype(np.float64)


@cache
def _of_byte(kind: str) -> Values:
    """Return the 256 values of an 8-bit float: e5m2 is the upper half of a float16, e4m3 has one NaN and no
    infinity.
    """
    byte = np.arange(256)
    if kind == "e5m2":
        return (byte << 8).astype(np.uint16).view(np.float16).astype(np.float64)
    exponent, fraction = byte >> 3 & 15, byte & 7
    size = np.ldexp(np.where(exponent == 0, fraction, fraction + 8), np.maximum(exponent, 1) - 10)
    size = np.where(byte & 127 == 127, np.nan, size)
    return np.where(byte >= 128, -size, size)


def to_float32_toward_zero(x: Values) -> NDArray[np.float32]:
    """Return the float32 rounded toward zero, but infinity from 2**128 on."""
    with np.errstate(over="ignore"):
        near = x.astype(np.float32)
        larger = (np.abs(near.astype(np.float64)) > np.abs(x)) & (np.abs(x) < 2.0**128)
        return np.where(larger, np.nextafter(near, np.float32(0)), near)


def float_bits(kind: str, x: NDArray[Any]) -> Bits:
    """Return raw bits of an accumulator, rounded to nearest; NaNs are the canonical ones of the GPU."""
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == "f16":
            return np.where(np.isnan(x), np.uint16(0x7FFF), x.astype(np.float16).view(np.uint16))
        return np.where(np.isnan(x), np.uint32(0x7FFFFFFF), x.astype(np.float32).view(np.uint32))
