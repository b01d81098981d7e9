"""Comparisons and selections."""

from collections.abc import Callable

import numpy as np

from kernel_lsp.emulate.arithmetic.formats import FORMATS, flush
from kernel_lsp.emulate.arithmetic.integer import numbers
from kernel_lsp.emulate.arithmetic.opcode import Opcode, Type
from kernel_lsp.emulate.arithmetic.operation import Array, Operation, typed
from kernel_lsp.emulate.arithmetic.packed import join, split

Comparison = Callable[[Array, Array], Array]

_ORDERED: dict[str, Comparison] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_COMBINE: dict[str, Comparison] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_ALL = (*_ORDERED, *_UNSIGNED, *_UNORDERED, "num", "nan")


def bind(opcode: Opcode) -> Operation | None:
    """Return the operation of an opcode that compares or selects, or None."""
    maker = _MAKERS.get(opcode.name)
    return maker(opcode) if maker is not None else None


def _unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _comparison(name: str, kind: Type) -> Comparison | None:
    """Return the comparison of numbers of a type by its operator; None if the type does not have it."""
    if kind.kind == "b":
        return _ORDERED[name] if name in ("eq", "ne") else None
    if kind.kind == "u":
        return _ORDERED.get(_UNSIGNED.get(name, name))
    if kind.kind == "s":
        return _ORDERED.get(name)
    if kind.kind != "f":
        return None
    if name == "num":
        return lambda a, b: ~_unordered(a, b)
    if name == "nan":
        return _unordered
    if name in _UNORDERED:
        compare = _ORDERED[_UNORDERED[name]]
        return lambda a, b: compare(a, b) | _unordered(a, b)
    if name == "ne":
        return lambda a, b: (a != b) & ~_unordered(a, b)
    return _ORDERED.get(name)


def _values(kind: Type, ftz: bool) -> Callable[[Array], Array]:
    """Return a function from raw bits to the numbers to compare, of shape (n, 2) for two packed ones."""
    if kind.kind != "f":
        return lambda x: numbers(x, kind)
    form = FORMATS[kind.element]

    def values(x: Array) -> Array:
        elements = split(x, form.bits) if kind.lanes == 2 else x
        return form.numbers(flush(elements, form) if ftz else elements)

    return values


def _parts(opcode: Opcode, kind: Type) -> tuple[Comparison, Comparison | None] | None:
    """Return an opcode's comparison of raw bits, and its combination with a predicate, if any."""
    combine = opcode.one_of(*_COMBINE)
    names = [flag for flag in opcode.flags if flag in _ALL]
    ftz = opcode.has("ftz")
    if combine is None or len(names) != 1 or not opcode.only(names[0], "ftz", *_COMBINE):
        return None
    if kind.bits == 8 or kind.name == "f32x2" or (kind.lanes == 2 and kind.kind != "f") or kind.name == "tf32":
        return None
    if kind.kind == "f" and kind.element not in ("f16", "bf16", "f32", "f64"):
        return None
    if ftz and kind.name not in ("f32", "f16", "f16x2"):
        return None
    compare = _comparison(names[0], kind)
    if compare is None:
        return None
    values = _values(kind, ftz)
    return lambda a, b: compare(values(a), values(b)), _COMBINE.get(combine)


def _setp(opcode: Opcode) -> Operation | None:
    """Bind `setp`: (p, q). Of packed types p is the lower half's and q the upper's; else q is the opposite of p."""
    if len(opcode.types) != 1:
        return None
    kind = opcode.type
    parts = _parts(opcode, kind)
    if parts is None:
        return None
    compare, combine = parts

    def run(a: Array, b: Array, *c: Array) -> tuple[Array, Array]:
        result = compare(a, b)
        p, q = (result[..., 0], result[..., 1]) if kind.lanes == 2 else (result, ~result)
        return (combine(p, c[0]), combine(q, c[0])) if combine is not None else (p, q)

    return typed(run, kind, kind)


_TRUE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def _set(opcode: Opcode) -> Operation | None:
    """Bind `set`: all ones or 1.0 where the comparison holds, else zero."""
    if len(opcode.types) != 2:
        return None
    target, kind = opcode.types
    parts = _parts(opcode, kind)
    if parts is None or target.bits == 8:
        return None
    compare, combine = parts
    if kind.lanes == 2:
        if target.name not in (kind.name, "u32", "s32"):
            return None
        element = np.uint16(_TRUE[kind.element] if target.kind == "f" else 0xFFFF)

        def packed(a: Array, b: Array, *c: Array) -> Array:
            holds = compare(a, b)
            holds = combine(holds, c[0][..., None]) if combine is not None else holds
            return join(np.where(holds, element, np.uint16(0)), 32)

        return typed(packed, kind, kind)
    if target.kind not in "us" and target.name not in _TRUE:
        return None
    true = target.raw(_TRUE[target.name] if target.kind == "f" else np.iinfo(target.raw).max)

    def run(a: Array, b: Array, *c: Array) -> Array:
        holds = compare(a, b)
        return np.where(combine(holds, c[0]) if combine is not None else holds, true, target.raw(0))

    return typed(run, kind, kind)


def _selp(opcode: Opcode) -> Operation | None:
    kind = opcode.type
    if opcode.flags or len(opcode.types) != 1 or kind.bits == 8 or kind.lanes != 1 or kind.kind == "p":
        return None
    return typed(lambda a, b, p: np.where(p, a, b), kind, kind)


def _slct(opcode: Opcode) -> Operation | None:
    """Bind `slct`: a where c is at least zero (minus zero is), else b, also for NaN."""
    if len(opcode.types) != 2 or opcode.types[1].name not in ("s32", "f32") or not opcode.only("ftz"):
        return None
    kind, sign = opcode.types
    if kind.bits == 8 or kind.lanes != 1 or (opcode.flags and sign.name != "f32"):
        return None
    values = _values(sign, opcode.has("ftz"))
    return typed(lambda a, b, c: np.where(values(c) >= 0, a, b), kind, kind, sign)


_MAKERS: dict[str, Callable[[Opcode], Operation | None]] = {
    "setp": _setp,
    "set": _set,
    "selp": _selp,
    "slct": _slct,
}
