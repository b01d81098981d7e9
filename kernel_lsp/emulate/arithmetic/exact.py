"""Sums, products, quotients and square roots as a rounded float64 and what is left of the exact result.

Every function gives `(value, rest)`: `value` is the exact result rounded to nearest, and the sign of `rest` says on
which side of it the exact result lies (zero: it is exact). The `narrow_` ones take float64 arrays that hold float32
values or narrower ones, where no intermediate can overflow or underflow. The `wide_` ones take any float64: lanes
that come near the limits of the range are computed one by one in integers.

Error-free transforms: Dekker 1971, Knuth; fused multiply-add: Boldo and Melquiond 2008.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from kernel_lsp.emulate.arithmetic.formats import odd
from kernel_lsp.emulate.arithmetic.operation import Array

Pair = tuple[Array, Array]

_SPLITTER = 134217729.0  # 2**27 + 1
_SMALL, _LARGE = 2.0**-450, 2.0**450


def narrow_sum(a: Array, b: Array) -> Pair:
    """Return a + b; also right for any float64 whose sum stays below 2**1023."""
    total = a + b
    shadow = total - a
    rest = (a - (total - shadow)) + (b - shadow)
    return total, np.where(np.isfinite(total), rest, 0.0)


def narrow_product(a: Array, b: Array) -> Pair:
    """Return a * b, which 48 bits hold."""
    return a * b, np.zeros(1)


def narrow_fma(a: Array, b: Array, c: Array) -> Pair:
    """Return a * b + c."""
    return narrow_sum(a * b, c)


def narrow_quotient(a: Array, b: Array) -> Pair:
    """Return a / b."""
    value = a / b
    product, error = _two_product(value, b)
    rest = (a - product) - error
    return value, np.where(np.isfinite(value) & np.isfinite(b), np.where(b < 0, -rest, rest), 0.0)


def narrow_root(a: Array) -> Pair:
    """Return the square root of a."""
    value = np.sqrt(a)
    product, error = _two_product(value, value)
    return value, np.where(np.isfinite(value), (a - product) - error, 0.0)


def _halves(a: Array) -> Pair:
    scaled = a * _SPLITTER
    upper = scaled - (scaled - a)
    return upper, a - upper


def _two_product(a: Array, b: Array) -> Pair:
    product = a * b
    a1, a0 = _halves(a)
    b1, b0 = _halves(b)
    return product, a0 * b0 - (((product - a1 * b1) - a0 * b1) - a1 * b0)


def _moderate(*values: Array) -> Array:
    """Return True for lanes whose values are all zero or well inside the range, so that no transform leaves it."""
    inside = np.True_
    for x in values:
        size = np.abs(x)
        inside = inside & ((size == 0) | ((size > _SMALL) & (size < _LARGE)))
    return np.asarray(inside)


def wide_sum(a: Array, b: Array) -> Pair:
    """Return a + b."""
    value, rest = narrow_sum(a, b)
    large = np.maximum(np.abs(a), np.abs(b)) > 2.0**1000
    return _fixed(value, rest, ~large, _exact_sum, a, b)


def wide_product(a: Array, b: Array) -> Pair:
    """Return a * b."""
    value, rest = _two_product(a, b)
    return _fixed(value, rest, _moderate(a, b), _exact_product, a, b)


def wide_fma(a: Array, b: Array, c: Array) -> Pair:
    """Return a * b + c, rounded once."""
    product, error = _two_product(a, b)
    middle, low = narrow_sum(c, error)
    top, rest = narrow_sum(product, middle)
    tail = odd(*narrow_sum(rest, low))
    value, left = narrow_sum(top, tail)
    value = np.where(value == 0, product + c, value)  # the transforms lose the sign of a zero
    return _fixed(value, left, _moderate(a, b, c), _exact_fma, a, b, c)


def wide_quotient(a: Array, b: Array) -> Pair:
    """Return a / b."""
    value, rest = narrow_quotient(a, b)
    return _fixed(value, rest, _moderate(a, b) & (b != 0), _exact_quotient, a, b)


def wide_root(a: Array) -> Pair:
    """Return the square root of a."""
    value, rest = narrow_root(a)
    return _fixed(value, rest, _moderate(a) & (a >= 0), _exact_root, a)


def _fixed(value: Array, rest: Array, good: Array, exact: Callable[..., tuple[float, int]], *operands: Array) -> Pair:
    """Return the pair, recomputing lanes that are not good one by one; operands that are not finite by IEEE."""
    if good.all():
        return value, rest
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    operands = tuple(np.broadcast_to(x, shape) for x in operands)
    value, rest = np.array(np.broadcast_to(value, shape)), np.array(np.broadcast_to(rest, shape))
    for lane in np.flatnonzero(~np.broadcast_to(good, shape)):
        at = np.unravel_index(lane, shape)
        value[at], rest[at] = exact(*(float(x[at]) for x in operands))
    return value, rest


def _rounded(exact: Fraction) -> tuple[float, int]:
    """Return a nonzero real rounded to nearest even, infinite beyond the range, and the sign of the remainder."""
    try:
        value = float(exact)
    except OverflowError:
        return (math.inf, -1) if exact > 0 else (-math.inf, 1)
    left = exact - Fraction(value)
    if value == 0 and exact < 0:
        value = -0.0
    return value, (left > 0) - (left < 0)


def _exact_sum(a: float, b: float) -> tuple[float, int]:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b, 0
    total = Fraction(a) + Fraction(b)
    return _rounded(total) if total else (a + b, 0)


def _exact_product(a: float, b: float) -> tuple[float, int]:
    if not (math.isfinite(a) and math.isfinite(b)) or a == 0 or b == 0:
        return a * b, 0
    return _rounded(Fraction(a) * Fraction(b))


def _exact_fma(a: float, b: float, c: float) -> tuple[float, int]:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return (a * b if math.isfinite(c) or not (math.isfinite(a) and math.isfinite(b)) else 0.0) + c, 0
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total:
        return _rounded(total)
    product_sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    return math.copysign(0.0, product_sign) + (c if c == 0 else math.copysign(0.0, c)), 0


def _exact_quotient(a: float, b: float) -> tuple[float, int]:
    if b == 0 or a == 0 or not (math.isfinite(a) and math.isfinite(b)):
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b)), 0
    return _rounded(Fraction(a) / Fraction(b))


def _exact_root(a: float) -> tuple[float, int]:
    if a == 0 or not a > 0 or math.isinf(a):
        return (a if a == 0 or a > 0 else math.nan), 0
    value = math.sqrt(a)
    left = Fraction(a) - Fraction(value) ** 2
    return value, (left > 0) - (left < 0)
