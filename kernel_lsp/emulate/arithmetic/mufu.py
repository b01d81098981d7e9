"""The special-function unit, bit for bit: the instructions MUFU.RCP to MUFU.TANH of an sm_90 GPU.

The scheme is that of Oberman and Siu, "A High-Performance Area-Efficient Multifunction Interpolator" (ARITH 2005): the
upper bits of the argument pick a segment with coefficients C0, C1, C2, and of the lower bits, xl, the unit computes
C0 + C1 xl + C2 xl^2. That is exact but for two things: the lowest 19 columns of the squarer are left out, and the sum
is cut to the precision of the result. Where a number is negative, it is complemented without the one that would make
that exact.

The coefficients in `mufu.json` were fitted to measurements on an H200 and give every one of its results: on all
arguments of one period of each function, and on samples of all others. Other architectures may differ in a last bit.

Functions take and give raw bits of float32. Subnormal arguments count as zeros, except of `tanh`, and results below the
normal range are zeros.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numpy as np

from kernel_lsp.emulate.arithmetic.operation import Array

_GUARD = 34  # bits that a table's sum has below those of a 24-bit mantissa
_KEPT = 14  # of these, the bits used in later steps
_LOW = 17  # bits of xl, at most
_DROPPED = 19  # columns of the squarer that are left out
_EXTRA = np.uint64((1 << 29) - 1)  # fraction bits that a float64 has beyond a float32
_PART = 1 << 13  # arguments computed at a time, so that intermediates stay in a core's cache
_FRACTION, _HIDDEN = (1 << 23) - 1, 1 << 23
_MINUS = np.uint32(1 << 31)
_INFINITY, _NAN, _ONE, _ZERO = (np.uint32(raw) for raw in (0x7F800000, 0x7FFFFFFF, 0x3F800000, 0))


@dataclass(frozen=True, eq=False)
class _Table:
    """The coefficients of each segment, in units of the last guard bit; C2 applies to the values of `_squares`."""

    low_bits: int
    c0: Array
    c1: Array
    c2: Array

    def __call__(self, place: Array) -> Array:
        """Return the sums at positions counted from the first segment's start."""
        segment, low = place >> self.low_bits, place & ((1 << self.low_bits) - 1)
        square = _squares()[low << (_LOW - self.low_bits)]
        total = self.c0[segment] + self.c1[segment] * low + self.c2[segment] * square
        return total >> (_GUARD - _KEPT)


@cache
def _tables() -> dict[str, _Table]:
    said: dict[str, Any] = json.loads((Path(__file__).parent / "mufu.json").read_text(encoding="utf-8"))
    return {name: _table(**table) for name, table in said.items()}


def _table(low_bits: int, points: list[int], rounding: int, segments: list[list[int]]) -> _Table:
    """Build a table; `points` are the binary places of each coefficient after the last bit of a 24-bit mantissa."""
    c0, c1, c2 = np.array(segments, np.int64).T
    p0, p1, p2 = (_GUARD - point for point in points)
    # A shorter xl stands at the upper end of the squarer, where a square counts for less.
    return _Table(low_bits, (c0 << p0) + rounding, c1 << p1, c2 << (p2 + _DROPPED - 2 * (_LOW - low_bits)))


@cache
def _squares() -> Array:
    """Return the square of each xl without its dropped columns: a sum of products of two bits, every pair taken
    once.
    """
    table = np.zeros(1, np.int64)
    for bit in range(_LOW):
        lower = np.arange(1 << bit, dtype=np.int64)
        table = np.concatenate([table, table + (1 << 2 * bit >> _DROPPED) + (lower << (bit + 1) >> _DROPPED)])
    return table


def _number(total: Array, exponent: Array | int) -> Array:
    """Return raw float32 bits of `total * 2**(exponent - 37)`, cut to a mantissa of 24 bits; zero below the normal
    range.
    """
    cut = (total.astype(np.float64).view(np.uint64) & ~_EXTRA).view(np.float64)
    value = np.ldexp(cut, exponent - (23 + _KEPT))
    return np.where(value < 2.0**-126, 0.0, value).astype(np.float32).view(np.uint32)


def _fields(x: Array) -> tuple[Array, Array]:
    """Return exponent, unbiased, and fraction of raw bits, both as int64."""
    wide = x.astype(np.int64)
    return (wide >> 23 & 255) - 127, wide & _FRACTION


def _chosen(x: Array, result: Array, *cases: tuple[Array, Any]) -> Array:
    """Return the results with special cases replaced; NaN gives the canonical one."""
    for where, value in cases:
        if where.any():
            result = np.where(where, value, result)
    return np.where((x & ~_MINUS) > _INFINITY, _NAN, result)


def _in_parts(unit: Callable[[Array], Array]) -> Callable[[Array], Array]:
    @wraps(unit)
    def run(x: Array) -> Array:
        if x.size <= _PART:
            return unit(x)
        flat = x.reshape(-1)
        parts = [unit(flat[start : start + _PART]) for start in range(0, len(flat), _PART)]
        return np.concatenate(parts).reshape(x.shape)

    return run


@_in_parts
def rcp(x: Array) -> Array:
    """Return MUFU.RCP: 1 / x, as raw bits of float32 like x, less than one unit in the last place from the exact value.

    Zeros and subnormal numbers give infinity, infinity gives zero, both of the sign of x; so does a result too small
    for a normal number.
    """
    exponent, fraction = _fields(x)
    result = _number(_tables()["rcp"](fraction), -exponent - 1)
    sign = x & _MINUS
    return _chosen(x, result | sign, (exponent == -127, _INFINITY | sign), (exponent == 128, sign))


@_in_parts
def rsqrt(x: Array) -> Array:
    """Return MUFU.RSQ, 1 / sqrt(x)."""
    exponent, fraction = _fields(x)
    odd = exponent & 1
    total = _by_parity("rsqrt", odd, fraction)
    total = np.where((odd | fraction) == 0, _HIDDEN << (_KEPT + 1), total)  # powers of 4 are exact
    result = _number(total, -1 - (exponent >> 1))
    return _chosen(
        x, result, (x >= _MINUS, _NAN), (exponent == -127, _INFINITY | (x & _MINUS)), (x == _INFINITY, _ZERO)
    )


@_in_parts
def sqrt(x: Array) -> Array:
    """Return MUFU.SQRT, the square root of x."""
    exponent, fraction = _fields(x)
    result = _number(_by_parity("sqrt", exponent & 1, fraction), exponent >> 1)
    return _chosen(x, result, (x >= _MINUS, _NAN), (exponent == -127, x & _MINUS), (x == _INFINITY, _INFINITY))


def _by_parity(name: str, odd: Array, fraction: Array) -> Array:
    """Return the sums of a function with one table for even exponents and one for odd ones."""
    return _tables()[name](fraction | odd << 23)


@_in_parts
def ex2(x: Array) -> Array:
    """Return MUFU.EX2, 2**x."""
    size = np.fmin(np.abs(x.view(np.float32)), np.float32(256)).astype(np.float64)
    place = (size * _HIDDEN).astype(np.int64)
    place = np.where(x < _MINUS, place, np.where(place & _FRACTION == 0, -place, ~place))
    whole = place >> 23
    result = _number(_tables()["ex2"](place & _FRACTION), whole)
    return _chosen(x, result)


@_in_parts
def lg2(x: Array) -> Array:
    """Return MUFU.LG2, the logarithm to base 2."""
    exponent, fraction = _fields(x)
    total = (exponent << (22 + _KEPT)) + (_tables()["lg2"](fraction) >> 1)  # one bit less than in other functions
    below = total < 0
    result = _number(np.where(below, ~total, total), 1) | np.where(below, _MINUS, _ZERO)
    cases = (x == _ONE, _ZERO), (x >= _MINUS, _NAN), (exponent == -127, _INFINITY | _MINUS), (x == _INFINITY, _INFINITY)
    return _chosen(x, result, *cases)


@_in_parts
def sin(x: Array) -> Array:
    """Return MUFU.SIN, the sine of x turns."""
    return _wave(x, 0, x & _MINUS)


@_in_parts
def cos(x: Array) -> Array:
    """Return MUFU.COS, the cosine of x turns."""
    return _wave(x, 1, _ZERO)


def _wave(x: Array, quarters: int, sign: Any) -> Array:
    """Return the sine of `|x|` turns plus some quarters; `sign` is flipped in the lower half of the wave."""
    finite = (x & ~_MINUS) < _INFINITY
    turns = np.mod(np.abs(np.where(finite, x.view(np.float32), np.float32(0)).astype(np.float64)), 1.0)
    place = (turns * (4 * _HIDDEN)).astype(np.int64) + quarters * _HIDDEN
    quarter, place = place >> 23, place & _FRACTION
    total = _tables()["sin"](np.where(quarter & 1 != 0, ~place & _FRACTION, place))
    result = _number(total, 0) ^ np.where(quarter & 2 != 0, _MINUS, _ZERO) ^ sign
    return _chosen(x, result, (~finite, _NAN))


_TANH_FIRST = -8  # below this exponent tanh(x) is x; from 3 on it is 1
_TANH_BITS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3])  # of the fraction that pick a segment, by exponent
_TANH_SEGMENTS = np.cumsum(1 << _TANH_BITS) - (1 << _TANH_BITS)


@_in_parts
def tanh(x: Array) -> Array:
    """Return MUFU.TANH, the hyperbolic tangent."""
    exponent, fraction = _fields(x)
    binade = np.clip(exponent - _TANH_FIRST, 0, len(_TANH_BITS) - 1)
    place = (_TANH_SEGMENTS[binade] << _LOW) + (fraction >> (23 - _LOW - _TANH_BITS[binade]))
    sign = x & _MINUS
    result = _number(_tables()["tanh"](place), exponent) | sign
    last = _TANH_FIRST + len(_TANH_BITS) - 1
    return _chosen(x, result, (exponent > last, _ONE | sign), (exponent < _TANH_FIRST, x))
