"""The approximate instructions, composed as by ptxas for sm_90 from the special-function unit and exact arithmetic.

Operands that the unit does not take are scaled, and its results are scaled back. 16-bit forms are computed as float32
and cut.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np

from kernel_lsp.emulate.arithmetic import floating, mufu
from kernel_lsp.emulate.arithmetic.floating import dressed, on_elements
from kernel_lsp.emulate.arithmetic.formats import F32, F64, FORMATS, FloatFormat, canonical, encode, flush, is_nan
from kernel_lsp.emulate.arithmetic.opcode import Opcode, decode
from kernel_lsp.emulate.arithmetic.operation import Array, Operation, typed

Function = Callable[..., Array]

_TURN = np.float64(np.float32(0.15915494))  # 1 / 2 pi, which angles are multiplied by
_LARGE, _SMALL = np.float32(2.0**126), np.float32(2.0**-126)
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_TYPES = {"tanh": ("f32", *_HALVES), "ex2": ("f32", *_HALVES)}
_UPPER_HALF = np.uint64(0xFFFFFFFF00000000)
_UPPER_NAN = np.uint64(0x7FFFFFFF00000000)
_SIGN = np.uint64(1 << 63)
_NEGATIVE = np.uint64(0xFFF8000000000000)  # the reciprocal root of a negative number


def bind(opcode: Opcode) -> Operation | None:
    """Return the operation of an approximate opcode; None for any other."""
    if len(opcode.types) != 1 or opcode.type.kind != "f":
        return None
    if opcode.name == "div":
        return _div(opcode)
    if opcode.name not in _UNITS or not opcode.has("approx") or not opcode.only("approx", "ftz"):
        return None
    kind, ftz = opcode.type, opcode.has("ftz")
    if kind.name == "f64":
        return _coarse(opcode) if ftz else _refined(opcode)
    if kind.name not in _TYPES.get(opcode.name, ("f32",)):
        return None
    if ftz and (opcode.name == "tanh" or kind.name in ("f16", "f16x2")):
        return None
    if opcode.name == "ex2" and kind.element == "bf16" and not ftz:
        return None
    unit = _UNITS[opcode.name]
    if kind.element != "f32":
        return on_elements(opcode, _shortened(unit, FORMATS[kind.element]), 1, approximate=True)
    return on_elements(opcode, unit if ftz else _WHOLE.get(opcode.name, unit), 1, approximate=True)


def _numbers(x: Array) -> Array:
    return x.view(np.float32)


def _times(x: Array, factor: Array | np.float32) -> Array:
    return canonical((_numbers(x) * factor).view(np.uint32), F32)


def _with_subnormals(unit: Function, back: Function) -> Function:
    """Wrap a unit to take subnormal operands: they are multiplied by 2**24, and `back` corrects the result."""

    def run(x: Array) -> Array:
        small = np.abs(_numbers(x)) < _SMALL
        if not small.any():
            return unit(x)
        result = unit(np.where(small, _times(x, np.float32(2.0**24)), x))
        return np.where(small, back(result), result)

    return run


def _rcp(x: Array) -> Array:
    """Return the reciprocal, also if it is subnormal."""
    size = np.abs(_numbers(x))
    scale = np.where(size < _SMALL, np.float32(2.0**24), np.where(size > _LARGE, np.float32(0.25), np.float32(1)))
    return _times(mufu.rcp(_times(x, scale)), scale)


def _ex2(x: Array) -> Array:
    """Return a power of two that may be subnormal: the square of that of half the exponent."""
    low = _numbers(x) < -126
    if not low.any():
        return mufu.ex2(x)
    result = mufu.ex2(np.where(low, _times(x, np.float32(0.5)), x))
    return np.where(low, _times(result, _numbers(result)), result)


def _turns(x: Array) -> Array:
    return encode(_numbers(x).astype(np.float64) * _TURN, F32, "rz")


_UNITS: dict[str, Function] = {
    "rcp": mufu.rcp,
    "sqrt": mufu.sqrt,
    "rsqrt": mufu.rsqrt,
    "sin": lambda x: mufu.sin(_turns(x)),
    "cos": lambda x: mufu.cos(_turns(x)),
    "lg2": mufu.lg2,
    "ex2": mufu.ex2,
    "tanh": mufu.tanh,
}
_WHOLE: dict[str, Function] = {
    "rcp": _rcp,
    "sqrt": _with_subnormals(mufu.sqrt, lambda y: _times(y, np.float32(2.0**-12))),
    "rsqrt": _with_subnormals(mufu.rsqrt, lambda y: _times(y, np.float32(2.0**12))),
    "lg2": _with_subnormals(mufu.lg2, lambda y: canonical((_numbers(y) - np.float32(24)).view(np.uint32), F32)),
    "ex2": _ex2,
}
"""Functions that need more than the unit unless `.ftz` is set."""


def _shortened(unit: Function, form: FloatFormat) -> Function:
    """Return a unit for raw bits of a 16-bit format."""

    def run(x: Array) -> Array:
        result = unit(form.numbers(x).astype(np.float32).view(np.uint32))
        short = encode(_numbers(result).astype(np.float64), form, "rz")
        # Cutting never makes a value infinite; a value too large for the format becomes so.
        return np.where(_numbers(result) >= 2.0**16, form.infinity, short) if form.name == "f16" else short

    return run


def _coarse(opcode: Opcode) -> Operation | None:
    """Bind `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: only upper halves are read and written.

    It is the unit on the upper 20 bits of the fraction, its result cut to as many.
    """
    if opcode.name not in ("rcp", "rsqrt"):
        return None
    unit, step = _UNITS[opcode.name], 1 if opcode.name == "rcp" else 2

    def run(a: Array) -> Array:
        x = flush(a & _UPPER_HALF, F64)
        fraction, power = np.frexp(x.view(np.float64))
        near = power % step
        result = _numbers(unit(np.ldexp(fraction, near).astype(np.float32).view(np.uint32)))
        scaled = np.ldexp(result.astype(np.float64), (near - power) // step)
        return np.where(
            is_nan(scaled.view(np.uint64), F64), _UPPER_NAN, flush(scaled.view(np.uint64) & _UPPER_HALF, F64)
        )

    return typed(run, opcode.type, approximate=True)


def _refined(opcode: Opcode) -> Operation | None:
    """Bind `rsqrt.approx.f64`: one step of refinement, as ptxas has it, from the unit's result."""
    if opcode.name != "rsqrt":
        return None
    coarse, multiply, fused = _bound("rsqrt.approx.ftz.f64"), _bound("mul.rn.f64"), _bound("fma.rn.f64")
    one, half, three_eighths = (np.float64(value).view(np.uint64) for value in (1.0, 0.5, 0.375))

    def step(x: Array) -> Array:
        near = coarse(x)
        error = fused(x, multiply(near, near) ^ _SIGN, one)
        return fused(fused(error, three_eighths, half), multiply(near, error), near)

    def run(a: Array) -> Array:
        x = a.view(np.float64)
        with np.errstate(all="ignore"):
            small = np.abs(x) < np.finfo(np.float64).tiny
            scaled = np.where(small, x * 2.0**54, x)
            found = step(scaled.view(np.uint64)).view(np.float64) * np.where(small, 2.0**27, 1.0)
            special = np.where(x == np.inf, 0.0, np.where(x == 0, np.copysign(np.inf, x), found)).view(np.uint64)
            return np.where(np.isnan(x), (x + x).view(np.uint64), np.where(x < 0, _NEGATIVE, special))

    return typed(run, opcode.type, approximate=True)


def _div(opcode: Opcode) -> Operation | None:
    """A product with the reciprocal, after both operands were scaled where that would be zero or infinite.

    Of large divisors only `div.full` does so, of subnormal ones both do without `.ftz`.
    """
    mode = opcode.one_of("approx", "full")
    if opcode.type.name != "f32" or not mode or not opcode.only("approx", "full", "ftz"):
        return None
    multiply = _bound("mul.ftz.f32" if opcode.has("ftz") else "mul.f32")

    def by(reciprocal: Function) -> Operation:
        def factors(a: Array, b: Array) -> tuple[Array, Array]:
            size = np.abs(_numbers(b))
            scale = np.where((size < _SMALL) & (not opcode.has("ftz")), np.float32(2.0**24), np.float32(1))
            if mode == "full":
                scale = np.where(size > _LARGE, np.float32(0.25), scale)
            factor = scale.view(np.uint32)
            return reciprocal(multiply(b, factor)), multiply(a, factor)

        quotient = dressed(opcode, F32, lambda a, b: multiply(*factors(a, b)))
        operation = on_elements(opcode, quotient, 2, approximate=True)
        return replace(operation, factors=typed(factors, opcode.type, opcode.type).run)

    # The assembler itself divides one by a constant.
    return replace(by(mufu.rcp), by_constant=by(_bound("rcp.rn.ftz.f32")))


def _bound(opcode: str) -> Function:
    decoded = decode(opcode)
    operation = (floating.bind(decoded) or bind(decoded)) if decoded else None
    assert operation is not None, opcode
    return cast("Function", operation.run)
