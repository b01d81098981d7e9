"""Floating-point arithmetic that IEEE 754 defines: rounded once, in every format, rounding and packed form.

Modifiers: `.ftz` makes subnormal operands and results zeros of the same sign, `.sat` clamps results to [0, 1] (NaN to
zero), `.relu` makes negative results zero. Subnormals are detected after rounding with an unbounded exponent:
a product or `fma` just below the smallest normal number may become zero although it would round up to that number.

NaN results are the canonical NaN of the format, except in f64, which hands on sign and payload of an operand, made
quiet: of `fma` b's before c's before a's, of `add`, `sub` and `mul` b's before a's, of `div` a's before b's. The sign
that `neg`, `abs` and the b of `sub` would turn stays as it is on a NaN. All of this is what an H200 does, by
`tests/bench/ptx_fuzz.py`.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kernel_lsp.emulate.arithmetic import exact
from kernel_lsp.emulate.arithmetic.formats import (
    F64,
    FORMATS,
    MODES,
    FloatFormat,
    canonical,
    encode,
    flush,
    is_nan,
    odd,
    relu,
    saturate,
    step,
)
from kernel_lsp.emulate.arithmetic.opcode import Opcode
from kernel_lsp.emulate.arithmetic.operation import Array, Operation, typed
from kernel_lsp.emulate.arithmetic.packed import lanewise

Compute = Callable[..., Array]
_QUIET = 1 << 51  # the bit of an f64 that tells quiet NaN from signalling ones
_OF_SUM, _OF_FMA, _OF_QUOTIENT = (1, 0), (1, 2, 0), (0, 1)  # order of the operands whose NaN is passed on


def bind(opcode: Opcode) -> Operation | None:
    """Return the operation of an opcode on floating-point values, or None."""
    maker = _MAKERS.get(opcode.name)
    return maker(opcode) if maker is not None and opcode.type.kind in "fb" else None


def on_elements(opcode: Opcode, compute: Compute, operands: int, **marks: bool) -> Operation:
    """Return a function of raw elements as the operation of a plain or packed type."""
    kind = opcode.type
    run = lanewise(compute, FORMATS[kind.element].bits) if kind.lanes == 2 else compute
    return typed(run, *[kind] * operands, **marks)


def dressed(opcode: Opcode, form: FloatFormat, compute: Compute, tiny: Compute | None = None) -> Compute:
    """Return `compute` on raw bits with the opcode's `.ftz`, `.sat` and `.relu` applied.

    `tiny` tells, for operands whose result is the smallest normal number, whether `.ftz` still makes it zero.
    """
    ftz, sat, positive = opcode.has("ftz"), opcode.has("sat"), opcode.has("relu")

    def run(*operands: Array) -> Array:
        if ftz:
            operands = tuple(flush(x, form) for x in operands)
        result = compute(*operands)
        if ftz:
            result = flush(result, form)
        if ftz and tiny is not None:
            edge = (result & ~form.sign) == form.smallest_normal
            if edge.any():
                result = np.where(edge & tiny(*operands), result & form.sign, result)
        if sat:
            result = saturate(result, form)
        return relu(result, form) if positive else result

    return run


def _format(opcode: Opcode) -> FloatFormat | None:
    kind = opcode.type
    return FORMATS.get(kind.element) if len(opcode.types) == 1 and kind.kind == "f" else None


def _tininess(form: FloatFormat, mode: str, pair: Callable[..., exact.Pair]) -> Compute:
    """Return a function that tells which results, rounded with an unbounded exponent, are subnormal (below f64
    only).
    """
    scale = 256.0
    smallest = form.numbers(np.full(1, form.smallest_normal)).astype(np.float64) * scale

    def run(*operands: Array) -> Array:
        value = odd(*pair(*(form.numbers(x).astype(np.float64) for x in operands)))
        rounded = encode(value * scale, form, mode)
        return np.abs(form.numbers(rounded).astype(np.float64)) < smallest

    return run


def quieted(result: Array, *operands: Array) -> Array:
    """Return raw f64 results with NaN as the hardware gives it: the first NaN operand made quiet, else the
    canonical one.
    """
    nan = is_nan(result, F64)
    if not nan.any():
        return result
    chosen: Array = np.asarray(F64.canonical)
    for x in reversed(operands):
        chosen = np.where(is_nan(x, F64), x | np.uint64(_QUIET), chosen)
    return np.where(nan, chosen, result)


def _signed_zero(result: Array, rest: Array, x: Array, y: Array) -> Array:
    """Return the sum with the sign of a zero for rounding down: minus unless both terms are plus zero."""
    both_plus = ~np.signbit(x) & ~np.signbit(y)
    return np.where((result == 0) & (rest == 0) & ~both_plus, -0.0, result)


def _rounding(
    form: FloatFormat,
    mode: str,
    narrow: Callable[..., exact.Pair],
    wide: Callable[..., exact.Pair],
    ranks: tuple[int, ...],
) -> Compute:
    """Return a function on raw bits that rounds an exact result once; `ranks` orders the operands whose NaN is
    passed on.
    """
    if form.name == "f64":

        def run64(*operands: Array) -> Array:
            numbers = [x.view(np.float64) for x in operands]
            value, rest = wide(*numbers)
            if mode == "rm" and wide in (exact.wide_sum, exact.wide_fma):
                value = _signed_zero(value, rest, *_terms(numbers))
            rounded = step(value.view(np.uint64), mode, rest < 0, rest > 0, form)
            return quieted(rounded, *(operands[i] for i in ranks))

        return run64

    def run(*operands: Array) -> Array:
        numbers = [form.numbers(x).astype(np.float64) for x in operands]
        value, rest = narrow(*numbers)
        if mode == "rm" and narrow in (exact.narrow_sum, exact.narrow_fma):
            value = _signed_zero(value, rest, *_terms(numbers))
        return encode(odd(value, rest), form, mode)

    return run


def _nearest(form: FloatFormat, plain: Compute, pair: Callable[..., exact.Pair]) -> Compute:
    """A sum rounded to nearest, for formats below f64.

    In float64 every product is exact, and rounding the sum twice does harm only where it came out halfway between two
    values of the format or below its normal range: only then is the exact `pair` computed.
    """
    dropped = 52 - form.mantissa_bits
    tail, halfway = np.uint64((1 << dropped) - 1), np.uint64(1 << dropped - 1)
    smallest = float(form.numbers(np.full(1, form.smallest_normal))[0])

    def run(*operands: Array) -> Array:
        numbers = [form.numbers(x).astype(np.float64) for x in operands]
        total = plain(*numbers)
        doubtful = ((total.view(np.uint64) & tail) == halfway) | (np.abs(total) < smallest)
        return encode(odd(*pair(*numbers)) if doubtful.any() else total, form, "rn")

    return run


def _terms(numbers: list[Array]) -> tuple[Array, Array]:
    """Return the two terms of a sum: as given, or the product and what is added."""
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    return numbers[0] * numbers[1], numbers[2]


def _native(form: FloatFormat, compute: Compute, ranks: tuple[int, ...]) -> Compute:
    """Return numpy's own operation, which rounds to nearest even as IEEE requires, on f32 or f64."""

    def run(*operands: Array) -> Array:
        result = compute(*(form.numbers(x) for x in operands)).view(form.raw)
        return quieted(result, *(operands[i] for i in ranks)) if form is F64 else canonical(result, form)

    return run


def _add(opcode: Opcode) -> Operation | None:
    form = _legal(opcode)
    if form is None:
        return None
    mode = opcode.one_of(*MODES, default="rn") or "rn"
    if mode == "rn" and form.name in ("f32", "f64"):
        add = _native(form, np.add, _OF_SUM)
    elif mode == "rn":
        add = _nearest(form, np.add, exact.narrow_sum)
    else:
        add = _rounding(form, mode, exact.narrow_sum, exact.wide_sum, _OF_SUM)
    if opcode.name == "sub":
        return on_elements(opcode, dressed(opcode, form, lambda a, b: add(a, _minus(b, form))), 2)
    return on_elements(opcode, dressed(opcode, form, add), 2)


def _mul(opcode: Opcode) -> Operation | None:
    form = _legal(opcode)
    if form is None:
        return None
    mode = opcode.one_of(*MODES, default="rn") or "rn"
    if mode == "rn" and form.name in ("f32", "f64"):
        multiply = _native(form, np.multiply, _OF_SUM)
    else:
        multiply = _rounding(form, mode, exact.narrow_product, exact.wide_product, _OF_SUM)
    product = on_elements(opcode, dressed(opcode, form, multiply, _tininess(form, mode, exact.narrow_product)), 2)
    return replace(product, factors=typed(lambda a, b: (a, b), opcode.type, opcode.type).run)


def _legal(opcode: Opcode) -> FloatFormat | None:
    """Return the format of `add`, `sub`, `mul`, `fma`, `mad` where their modifiers exist for it."""
    form = _format(opcode)
    fused = opcode.name in ("fma", "mad")
    if form is None or opcode.one_of(*MODES) is None:
        return None
    if form.name == "f64":
        allowed: tuple[str, ...] = MODES
    elif opcode.type.name == "f32x2":
        allowed = (*MODES, "ftz")
    elif form.name == "f32":
        allowed = (*MODES, "ftz", "sat")
    elif form.name == "f16":
        allowed = ("rn", "ftz", "sat", "relu") if fused else ("rn", "ftz", "sat")
    else:
        allowed = ("rn", "relu") if fused else ("rn",)
    if not opcode.only(*allowed) or (opcode.has("sat") and opcode.has("relu")):
        return None
    return form


def _fma(opcode: Opcode) -> Operation | None:
    """Bind `fma`, and `mad` on floating-point values, which is the same."""
    form = _legal(opcode)
    if form is None:
        return None
    mode = opcode.one_of(*MODES) or ""
    if not mode or (opcode.name == "mad" and form.name not in ("f32", "f64")):
        return None
    if mode == "rn" and form.name != "f64":
        fused = _nearest(form, lambda a, b, c: a * b + c, exact.narrow_fma)
    else:
        fused = _rounding(form, mode, exact.narrow_fma, exact.wide_fma, _OF_FMA)
    return on_elements(opcode, dressed(opcode, form, fused, _tininess(form, mode, exact.narrow_fma)), 3)


def _rounded(opcode: Opcode) -> Operation | None:
    """Bind `div`, `rcp` and `sqrt` with a rounding."""
    form = _format(opcode)
    mode = opcode.one_of(*MODES)
    if form is None or not mode or opcode.type.name not in ("f32", "f64"):
        return None
    if not opcode.only(*MODES, *(("ftz",) if form.name == "f32" else ())):
        return None
    root = opcode.name == "sqrt"
    ranks = (0,) if root else _OF_QUOTIENT
    if mode == "rn":
        compute = _native(form, np.sqrt if root else np.divide, ranks)
    elif root:
        compute = _rounding(form, mode, exact.narrow_root, exact.wide_root, ranks)
    else:
        compute = _rounding(form, mode, exact.narrow_quotient, exact.wide_quotient, ranks)
    if opcode.name == "rcp":
        return on_elements(opcode, dressed(opcode, form, lambda a: compute(np.full(1, form.one), a)), 1)
    if root:
        return on_elements(opcode, dressed(opcode, form, compute), 1)
    return on_elements(opcode, dressed(opcode, form, compute, _tininess(form, mode, exact.narrow_quotient)), 2)


def _sign(opcode: Opcode) -> Operation | None:
    """Bind `neg` and `abs`."""
    form = _format(opcode)
    if form is None or opcode.type.name == "f32x2":
        return None
    if opcode.flags and not (opcode.flags == ("ftz",) and form.name in ("f32", "f16")):
        return None
    turn = _minus if opcode.name == "neg" else _size
    settle = quiet if form.name == "f64" else canonical
    return on_elements(opcode, dressed(opcode, form, lambda a: settle(turn(a, form), form)), 1)


def _minus(x: Array, form: FloatFormat) -> Array:
    """Return raw bits with the sign turned; that of NaN stays in f64, and does not matter in the other formats."""
    return np.where(is_nan(x, form), x, x ^ form.sign) if form is F64 else x ^ form.sign


def _size(x: Array, form: FloatFormat) -> Array:
    """Return raw bits without the sign; that of NaN stays in f64, and does not matter in the other formats."""
    return np.where(is_nan(x, form), x, x & ~form.sign) if form is F64 else x & ~form.sign


def quiet(x: Array, form: FloatFormat) -> Array:
    """Return raw f64 bits with every NaN made quiet, its sign and payload kept."""
    return np.where(is_nan(x, form), x | np.uint64(_QUIET), x)


def _key(x: Array, form: FloatFormat) -> Array:
    """Return raw bits as integers in the order of their values, minus zero before plus zero."""
    return np.where(x & form.sign != 0, ~x, x | form.sign)


def _extreme(opcode: Opcode) -> Operation | None:
    """Bind `min` and `max` of two values, or three: a number wins over NaN unless `.NaN` says otherwise."""
    form = _format(opcode)
    if form is None or opcode.type.name == "f32x2":
        return None
    if form.name == "f64":
        allowed: tuple[str, ...] = ()
    else:
        allowed = ("NaN", "xorsign", "abs") if form.name == "bf16" else ("ftz", "NaN", "xorsign", "abs")
    if not opcode.only(*allowed) or opcode.has("xorsign") != opcode.has("abs"):
        return None
    least, spread = opcode.name == "min", opcode.has("NaN")
    signs = opcode.has("xorsign")

    def pick(a: Array, b: Array) -> Array:
        x, y = (a & ~form.sign, b & ~form.sign) if signs else (a, b)
        first = (_key(x, form) <= _key(y, form)) == least
        result = np.where(first, x, y)
        nan_x, nan_y = is_nan(x, form), is_nan(y, form)
        if nan_x.any() or nan_y.any():
            result = np.where(nan_x, y, np.where(nan_y, x, result))
            neither = quiet(b, form) if form.name == "f64" else form.canonical
            result = np.where((nan_x | nan_y) if spread else (nan_x & nan_y), neither, result)
        return np.where(is_nan(result, form), result, result | ((a ^ b) & form.sign)) if signs else result

    def run(a: Array, b: Array, *c: Array) -> Array:
        return pick(pick(a, b), c[0]) if c else pick(a, b)

    return on_elements(opcode, dressed(opcode, form, run), 3 if form.name == "f32" else 2)


def _testp(opcode: Opcode) -> Operation | None:
    form = _format(opcode)
    test = opcode.one_of(*_TESTS)
    if form is None or not test or len(opcode.flags) != 1 or opcode.type.name not in ("f32", "f64"):
        return None
    return typed(lambda a: _TESTS[test](a & ~form.sign, form), opcode.type)


_TESTS: dict[str, Callable[[Array, FloatFormat], Array]] = {
    "finite": lambda x, form: x < form.infinity,
    "infinite": lambda x, form: x == form.infinity,
    "number": lambda x, form: x <= form.infinity,
    "notanumber": lambda x, form: x > form.infinity,
    # The ISA counts zeros among the normal numbers.
    "normal": lambda x, form: (x == 0) | ((x >= form.smallest_normal) & (x < form.infinity)),
    "subnormal": lambda x, form: (x > 0) & (x < form.smallest_normal),
}


def _copysign(opcode: Opcode) -> Operation | None:
    """Bind `copysign`: b with the sign of a."""
    form = _format(opcode)
    if form is None or opcode.flags or opcode.type.name not in ("f32", "f64"):
        return None
    return typed(lambda a, b: (a & form.sign) | (b & ~form.sign), opcode.type, opcode.type)


_MAKERS: dict[str, Callable[[Opcode], Operation | None]] = {
    "add": _add,
    "sub": _add,
    "mul": _mul,
    "fma": _fma,
    "mad": _fma,
    "div": _rounded,
    "rcp": _rounded,
    "sqrt": _rounded,
    "neg": _sign,
    "abs": _sign,
    "min": _extreme,
    "max": _extreme,
    "testp": _testp,
    "copysign": _copysign,
}
