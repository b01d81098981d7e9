"""Floating-point formats: raw bits to numbers, exact numbers to raw bits under any rounding.

An exact real is carried as a float64 that is *rounded to odd*: where the value is not representable, the neighbour with
an odd last bit stands for it. Rounding that to a format with at most 51 bits gives the same as rounding the real itself
(Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernel_lsp.emulate.arithmetic.opcode import UNSIGNED
from kernel_lsp.emulate.arithmetic.operation import Array

Mode = str  # rn, rz, rm, rp, rna
MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class FloatFormat:
    """A binary format with infinities and NaN; masks are integers over its raw bits."""

    name: str
    bits: int
    mantissa_bits: int
    nan: int
    numbers: Callable[[Array], Array]

    @property
    def raw(self) -> type[np.unsignedinteger]:
        """Return numpy's type of the raw bits."""
        return UNSIGNED[self.bits]

    @property
    def sign(self) -> np.unsignedinteger:
        """Return the sign bit."""
        return self.raw(1 << (self.bits - 1))

    @property
    def infinity(self) -> np.unsignedinteger:
        """Return raw bits of infinity."""
        return self.raw((1 << (self.bits - 1)) - (1 << self.mantissa_bits))

    @property
    def smallest_normal(self) -> np.unsignedinteger:
        """Return raw bits of the smallest normal number."""
        return self.raw(1 << self.mantissa_bits)

    @property
    def canonical(self) -> np.unsignedinteger:
        """Return raw bits of the NaN that the hardware makes."""
        return self.raw(self.nan)

    @property
    def one(self) -> np.unsignedinteger:
        """Return raw bits of 1.0."""
        return self.raw(((1 << (self.bits - 2 - self.mantissa_bits)) - 1) << self.mantissa_bits)


def _bfloat16(x: Array) -> Array:
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


F16 = FloatFormat("f16", 16, 10, 0x7FFF, lambda x: x.view(np.float16))
BF16 = FloatFormat("bf16", 16, 7, 0x7FFF, _bfloat16)
F32 = FloatFormat("f32", 32, 23, 0x7FFFFFFF, lambda x: x.view(np.float32))
F64 = FloatFormat("f64", 64, 52, 0xFFF8000000000000, lambda x: x.view(np.float64))
FORMATS = {form.name: form for form in (F16, BF16, F32, F64)}


def flush(x: Array, form: FloatFormat) -> Array:
    """Return raw bits with subnormals made zeros of the same sign."""
    size = x & ~form.sign
    subnormal = (size - form.raw(1)) < form.smallest_normal - form.raw(1)
    return np.where(subnormal, x & form.sign, x) if subnormal.any() else x


def is_nan(x: Array, form: FloatFormat) -> Array:
    """Return True where raw bits are NaN."""
    return (x & ~form.sign) > form.infinity


def canonical(x: Array, form: FloatFormat) -> Array:
    """Return raw bits with every NaN made the canonical one."""
    nan = is_nan(x, form)
    return np.where(nan, form.canonical, x) if nan.any() else x


def saturate(x: Array, form: FloatFormat) -> Array:
    """Return raw bits clamped to [0, 1]; NaN becomes zero."""
    negative_or_nan = (x >= form.sign) | is_nan(x, form)
    return np.where(negative_or_nan, form.raw(0), np.minimum(x, form.one))


def relu(x: Array, form: FloatFormat) -> Array:
    """Return raw bits with negative values made zero; NaN becomes the canonical one."""
    return canonical(np.where((x & form.sign != 0) & ~is_nan(x, form), form.raw(0), x), form)


def step(x: Array, mode: Mode, too_high: Array, too_low: Array, form: FloatFormat) -> Array:
    """Return raw bits rounded to nearest, corrected to another rounding direction.

    `too_high` and `too_low` tell where the rounded value lies above and below the exact one.
    """
    if mode == "rn":
        return x
    negative = x & form.sign != 0
    if mode == "rz":
        change = np.where(negative, too_low, too_high)
        return np.where(change, x - form.raw(1), x)
    change = too_high if mode == "rm" else too_low
    outward = negative if mode == "rm" else ~negative
    return np.where(change, np.where(outward, x + form.raw(1), x - form.raw(1)), x)


def odd(value: Array, rest: Array) -> Array:
    """Return `value` (float64) rounded to odd, where the exact real is `value` plus something of the sign of `rest`."""
    inexact = rest != 0
    if not inexact.any():
        return value
    bits = value.view(np.uint64)
    even = (bits & np.uint64(1)) == 0
    away = np.signbit(rest) == np.signbit(value)
    stepped = np.where(away, bits + np.uint64(1), bits - np.uint64(1))
    return np.where(inexact & even & np.isfinite(value), stepped, bits).view(np.float64)


def encode(value: Array, form: FloatFormat, mode: Mode) -> Array:
    """Return raw bits of float64 numbers (exact, or rounded to odd) rounded once; NaN becomes the canonical one."""
    if form.name == "f64":
        return canonical(value.view(np.uint64), form)
    if form.name == "bf16":
        return shorten(_odd32(value), form, 16, mode)
    native = np.float32 if form.name == "f32" else np.float16
    rounded = value.astype(native)
    result = canonical(rounded.view(form.raw), form)
    if mode == "rn":
        return result
    back = rounded.astype(np.float64)
    return step(result, mode, back > value, back < value, form)


def _odd32(value: Array) -> Array:
    """Return raw float32 bits of float64 numbers, rounded to odd."""
    rounded = value.astype(np.float32)
    bits = rounded.view(np.uint32)
    back = rounded.astype(np.float64)
    inward = np.abs(back) > np.abs(value)
    change = (back != value) & ((bits & np.uint32(1)) == 0) & ~np.isnan(value)
    if not change.any():
        return bits
    return np.where(change, np.where(inward, bits - np.uint32(1), bits + np.uint32(1)), bits)


def shorten(x: Array, form: FloatFormat, dropped: int, mode: Mode) -> Array:
    """Return raw float32 bits without their lowest `dropped` bits, rounded.

    For `bf16` the result is moved down to 16 bits; for a float32 format (tf32) the dropped bits become zero.
    """
    unit = np.uint32(1 << dropped)
    if mode == "rn":
        bias: Array | np.uint32 = np.uint32((1 << (dropped - 1)) - 1) + (x >> np.uint32(dropped) & np.uint32(1))
    elif mode == "rna":
        bias = np.uint32(1 << (dropped - 1))
    elif mode == "rz":
        bias = np.uint32(0)
    else:
        negative = x >= F32.sign
        bias = np.where(negative if mode == "rm" else ~negative, unit - np.uint32(1), np.uint32(0))
    special = (x & ~F32.sign) >= F32.infinity
    rounded = np.where(special, x, x + bias) & ~(unit - np.uint32(1))
    if form.bits == 16:
        shifted = (rounded >> np.uint32(dropped)).astype(np.uint16)
        return np.where(is_nan(x, F32), form.canonical, shifted)
    return np.where(is_nan(x, F32), F32.canonical, rounded)
