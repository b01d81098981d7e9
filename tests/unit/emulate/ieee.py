"""IEEE 754 in exact rationals: what the emulator's arithmetic is held to. Shares no code with it."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

SHAPES = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}
RAW = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}

Number = Fraction | float  # a float where it is an infinity or NaN


def width(form):
    return sum(SHAPES[form]) + 1


def fields(bits, form):
    exponent_bits, mantissa_bits = SHAPES[form]
    return (
        bits >> (exponent_bits + mantissa_bits),
        bits >> mantissa_bits & (1 << exponent_bits) - 1,
        bits & (1 << mantissa_bits) - 1,
    )


def number(bits, form):
    """The value of raw bits: a Fraction, or a float for infinities and NaN."""
    exponent_bits, mantissa_bits = SHAPES[form]
    sign, exponent, mantissa = fields(bits, form)
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if mantissa else (-math.inf if sign else math.inf)
    bias = (1 << exponent_bits - 1) - 1
    significand = mantissa + ((1 << mantissa_bits) if exponent else 0)
    value = Fraction(significand) * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
    return -value if sign else value


def negative(bits, form):
    return bool(fields(bits, form)[0])


def is_nan(bits, form):
    value = number(bits, form)
    return isinstance(value, float) and math.isnan(value)


def infinity(form, sign=False):
    exponent_bits, mantissa_bits = SHAPES[form]
    return (((1 << exponent_bits) - 1) << mantissa_bits) | (sign << (exponent_bits + mantissa_bits))


def integral(value, mode):
    """A Fraction to an integer, under a rounding."""
    below = math.floor(value)
    match mode:
        case "rm":
            return below
        case "rp":
            return math.ceil(value)
        case "rz":
            return math.trunc(value)
        case "rna":
            size = math.floor(abs(value) + Fraction(1, 2))
            return -size if value < 0 else size
    return round(value)


def rounded(value, form, mode="rn", zero_sign=False):
    """Raw bits of a real, rounded once; `zero_sign` is the sign of an exact zero."""
    exponent_bits, mantissa_bits = SHAPES[form]
    if isinstance(value, float):
        return NAN[form] if math.isnan(value) else infinity(form, value < 0)
    top = 1 << (exponent_bits + mantissa_bits)
    if value == 0:
        return top if zero_sign else 0
    bias = (1 << exponent_bits - 1) - 1
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(exponent - (size < Fraction(2) ** exponent), 1 - bias)
    units = abs(integral(value / Fraction(2) ** (exponent - mantissa_bits), mode))
    sign = top if value < 0 else 0
    # Subnormals and carries into the next exponent fall into place, for codes follow the order of values.
    code = units + ((exponent + bias - 1) << mantissa_bits)
    if code < infinity(form):
        return sign | code
    keeps = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
    return sign | (infinity(form) - 1 if keeps else infinity(form))


def flushed(bits, form):
    _, exponent, _ = fields(bits, form)
    return bits if exponent else bits & 1 << width(form) - 1


def added(a, b, form, mode="rn"):
    """Raw bits of the sum of two raw values; NaN is the canonical one."""
    x, y = number(a, form), number(b, form)
    if isinstance(x, float) or isinstance(y, float):
        return rounded(float_sum(x, y), form)
    signs = negative(a, form), negative(b, form)
    zero_sign = signs[0] if signs[0] == signs[1] else mode == "rm"
    return rounded(x + y, form, mode, zero_sign if x == 0 and y == 0 else mode == "rm")


def float_sum(x, y):
    """The sum of two numbers of which one is not finite."""
    parts = [v for v in (x, y) if isinstance(v, float)]
    return sum(parts)


def multiplied(a, b, form, mode="rn"):
    x, y = number(a, form), number(b, form)
    sign = negative(a, form) != negative(b, form)
    if isinstance(x, float) or isinstance(y, float):
        if any(isinstance(v, float) and math.isnan(v) for v in (x, y)) or x == 0 or y == 0:
            return NAN[form]
        return infinity(form, sign)
    return rounded(x * y, form, mode, sign)


def fused(a, b, c, form, mode="rn"):
    x, y, z = (number(v, form) for v in (a, b, c))
    sign = negative(a, form) != negative(b, form)
    if any(isinstance(v, float) for v in (x, y)):
        if any(isinstance(v, float) and math.isnan(v) for v in (x, y, z)) or x == 0 or y == 0:
            return NAN[form]
        return rounded(float_sum(-math.inf if sign else math.inf, z), form)
    if isinstance(z, float):
        return rounded(z, form)
    exact = x * y + z
    both_zero = x * y == 0 and z == 0
    same = sign == negative(c, form)
    return rounded(exact, form, mode, sign if both_zero and same else mode == "rm")


def divided(a, b, form, mode="rn"):
    x, y = number(a, form), number(b, form)
    sign = negative(a, form) != negative(b, form)
    special = isinstance(x, float), isinstance(y, float)
    if any(isinstance(v, float) and math.isnan(v) for v in (x, y)) or all(special) or (x == 0 and y == 0):
        return NAN[form]
    if special[0] or y == 0:
        return infinity(form, sign)
    return rounded(Fraction(0) if special[1] else x / y, form, mode, sign)


def rooted(a, form, mode="rn"):
    """The square root, by integers with 200 bits to spare: what is left over can only be below the last of them."""
    x = number(a, form)
    if x == 0:
        return a
    if isinstance(x, float) or x < 0:
        return infinity(form) if x == math.inf else NAN[form]
    shift = 700
    scaled = x * Fraction(4) ** shift
    root = math.isqrt(math.floor(scaled))
    exact = Fraction(root) ** 2 == scaled
    value = Fraction(root) / Fraction(2) ** shift + (0 if exact else Fraction(1, 2 ** (shift + 1)))
    return rounded(value, form, mode)


def raw_values(form):
    """Raw bits of a format: specials, neighbours of specials, anything."""
    exponent_bits, mantissa_bits = SHAPES[form]
    one = ((1 << exponent_bits - 1) - 1) << mantissa_bits
    anchors = st.sampled_from([0, 1 << mantissa_bits, one, infinity(form), infinity(form) + (1 << mantissa_bits - 1)])
    sign = st.sampled_from([0, 1 << width(form) - 1])
    near = st.builds(
        lambda a, d, s: max(0, min(a + d, (1 << width(form) - 1) - 1)) | s, anchors, st.integers(-3, 3), sign
    )
    mantissas = st.integers(0, (1 << mantissa_bits) - 1)
    ordinary = st.builds(lambda e, m, s: one + (e << mantissa_bits) + m | s, st.integers(-6, 5), mantissas, sign)
    return st.one_of(near, ordinary, st.integers(0, (1 << width(form)) - 1))


def array(values, form):
    return np.array(values, RAW[form])
