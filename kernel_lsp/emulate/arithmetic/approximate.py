"""The approximate units: computed in float64 and rounded once, where the hardware is off by a last bit or so."""

from collections.abc import Callable

import numpy as np

from kernel_lsp.emulate.arithmetic.floating import dressed, on_elements
from kernel_lsp.emulate.arithmetic.formats import FORMATS, Format, encode, flush
from kernel_lsp.emulate.arithmetic.opcode import Opcode
from kernel_lsp.emulate.arithmetic.operation import Array, Operation, typed

_TURNS = np.float64(np.float32(0.15915494))  # 1 / 2 pi as the unit multiplies with it


def _fraction(x: Array) -> Array:
    """The angle as the part of a turn: the product with 1 / 2 pi is cut to f32, then its integer part dropped."""
    turns = encode(x * _TURNS, FORMATS["f32"], "rz").view(np.float32).astype(np.float64)
    whole = np.rint(turns)
    return np.where(whole == 0, turns, turns - whole)  # keeps the sign of a zero


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": lambda x: np.sin(2 * np.pi * _fraction(x)),
    "cos": lambda x: np.cos(2 * np.pi * _fraction(x)),
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_TYPES = {"tanh": ("f32", *_HALVES), "ex2": ("f32", *_HALVES)}
_UPPER_HALF = np.uint64(0xFFFFFFFF00000000)
_UPPER_NAN = np.uint64(0x7FFFFFFF00000000)


def bind(opcode: Opcode) -> Operation | None:
    """The operation of an opcode of the approximate units, or None."""
    if len(opcode.types) != 1 or opcode.type.kind != "f":
        return None
    if opcode.name == "div":
        return _div(opcode)
    if opcode.name not in _FUNCTIONS or not opcode.has("approx") or not opcode.only("approx", "ftz"):
        return None
    function, kind = _FUNCTIONS[opcode.name], opcode.type
    if kind.name == "f64":
        return _coarse(opcode, function)
    if kind.name not in _TYPES.get(opcode.name, ("f32",)):
        return None
    if opcode.has("ftz") and (opcode.name == "tanh" or kind.name in ("f16", "f16x2")):
        return None
    if opcode.name == "ex2" and kind.element == "bf16" and not opcode.has("ftz"):
        return None
    form = FORMATS[kind.element]

    def run(a: Array) -> Array:
        return encode(function(form.numbers(a).astype(np.float64)), form, "rn")

    return on_elements(opcode, dressed(opcode, form, run), 1, approximate=True)


def _coarse(opcode: Opcode, function: Callable[[Array], Array]) -> Operation | None:
    """`rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: only upper halves are read and written."""
    if opcode.name not in ("rcp", "rsqrt") or not opcode.has("ftz"):
        return None
    form = FORMATS["f64"]

    def run(a: Array) -> Array:
        x = flush(a & _UPPER_HALF, form).view(np.float64)
        result = function(x)
        exact = result.view(np.uint64)
        rounded = np.where(np.isfinite(result), exact + np.uint64(1 << 31), exact)
        return np.where(np.isnan(result), _UPPER_NAN, flush(rounded & _UPPER_HALF, form))

    return typed(run, opcode.type, approximate=True)


def _div(opcode: Opcode) -> Operation | None:
    """`div.approx` is a product with the reciprocal, which is zero for divisors above 2**126; `div.full` is not."""
    mode = opcode.one_of("approx", "full")
    if opcode.type.name != "f32" or not mode or not opcode.only("approx", "full", "ftz"):
        return None
    form: Format = FORMATS["f32"]

    def run(a: Array, b: Array) -> Array:
        x, y = a.view(np.float32).astype(np.float64), b.view(np.float32).astype(np.float64)
        if mode == "approx":
            y = np.where((np.abs(y) > 2.0**126) & np.isfinite(y), np.copysign(np.inf, y), y)
        return encode(x / y, form, "rn")

    return on_elements(opcode, dressed(opcode, form, run), 2, approximate=True)
