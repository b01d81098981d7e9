"""`cvt`: between all integer and floating-point types, with rounding and saturation."""

from collections.abc import Callable

import numpy as np

from kernel_lsp.emulate.arithmetic import narrow
from kernel_lsp.emulate.arithmetic.floating import quiet
from kernel_lsp.emulate.arithmetic.formats import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    MODES,
    FloatFormat,
    canonical,
    encode,
    flush,
    is_nan,
    relu,
    saturate,
    shorten,
)
from kernel_lsp.emulate.arithmetic.opcode import SIGNED, TYPES, UNSIGNED, Opcode, Type
from kernel_lsp.emulate.arithmetic.operation import Array, Operation, typed
from kernel_lsp.emulate.arithmetic.packed import split

_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_PLAIN = ("f16", "bf16", "f32", "f64")
_F32_TYPE = TYPES["f32"]


def bind(opcode: Opcode) -> Operation | None:
    """The operation of `cvt`, or None."""
    if opcode.name == "cvt" and opcode.has("pack"):
        return _pack(opcode)
    if opcode.name != "cvt" or len(opcode.types) != 2:
        return None
    target, source = opcode.types
    integers = {"u", "s"}
    if target.lanes == 2 or source.lanes == 2:
        return _packed(opcode, target, source)
    if target.name == "tf32":
        return _tf32(opcode, source)
    if target.kind in integers and source.kind in integers:
        return _integer_to_integer(opcode, target, source)
    if source.name not in _PLAIN:
        return _integer_to_float(opcode, target, source) if source.kind in integers and target.name in _PLAIN else None
    if target.kind in integers:
        return _float_to_integer(opcode, target, source)
    return _float_to_float(opcode, target, source) if target.name in _PLAIN else None


def _limits(kind: Type) -> tuple[int, int]:
    """Return the least and the greatest integer of a type."""
    return (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1) if kind.kind == "s" else (0, (1 << kind.bits) - 1)


def _integers(x: Array, kind: Type) -> Array:
    """Return raw bits as int64 or uint64 numbers; of 8-bit types only the low byte counts."""
    if kind.bits == 8:
        return x.astype(np.int8 if kind.kind == "s" else np.uint8).astype(np.int64)
    wide = np.uint64 if kind.kind == "u" and kind.bits == 64 else np.int64
    return (x.view(SIGNED[kind.bits]) if kind.kind == "s" else x).astype(wide)


def _stored(x: Array, kind: Type) -> Array:
    """Return int64 or uint64 numbers as raw bits of a type, 8-bit ones extended to 16 bits."""
    if kind.bits == 8:
        byte = x.astype(np.int8 if kind.kind == "s" else np.uint8)
        return byte.astype(np.int16).view(np.uint16)
    return x.astype(UNSIGNED[kind.bits])


def _integer_to_integer(opcode: Opcode, target: Type, source: Type) -> Operation | None:
    if not opcode.only("sat"):
        return None
    low, high = _limits(target)

    def run(a: Array) -> Array:
        x = _integers(a, source)
        if opcode.flags:
            least, most = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
            x = np.clip(x, max(low, int(least)), min(high, int(most)))
        return _stored(x, target)

    return typed(run, source, extends_sign=target.kind == "s")


def _pack(opcode: Opcode) -> Operation | None:
    """Clamps two integers to a type below 32 bits: the first above the second, above both the low bits of a third."""
    names = [kind.name for kind in opcode.types]
    small = [name for name in (*opcode.flags, *names[:1]) if name[1:] in ("2", "4", "8", "16")]
    if len(small) != 1 or not opcode.only("pack", "sat", *small) or "s32" not in names:
        return None
    signed, bits = small[0][0] == "s", int(small[0][1:])
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if (names[-1] == "b32") != (bits < 16):
        return None
    mask = np.uint32((1 << bits) - 1)

    def run(a: Array, b: Array, *c: Array) -> Array:
        high, low = (np.clip(x.view(np.int32), least, most).view(np.uint32) & mask for x in (a, b))
        pair = high << np.uint32(bits) | low
        return pair | c[0] << np.uint32(2 * bits) if c else pair

    return typed(run, *[TYPES["b32"]] * (3 if bits < 16 else 2))


def _float_to_integer(opcode: Opcode, target: Type, source: Type) -> Operation | None:
    """Clamped to the target's range. NaN is 0, but the middle of the range where a type of 64 bits takes part."""
    mode = opcode.one_of(*_INTEGRAL)
    if not mode or not opcode.only(*_INTEGRAL, "ftz", "sat") or (opcode.has("ftz") and source.name != "f32"):
        return None
    form, (low, high) = FORMATS[source.name], _limits(target)
    wide = np.uint64 if target.name == "u64" else np.int64
    beyond = float(high + 1)
    nan = 1 << target.bits - 1 if source.name == "f64" or target.bits == 64 else 0

    def run(a: Array) -> Array:
        bits = flush(a, form) if opcode.has("ftz") else a
        x = _INTEGRAL[mode](form.numbers(bits).astype(np.float64))
        inside = (x >= low) & (x < beyond)
        whole = np.where(inside, x, 0.0).astype(wide)
        result = _stored(np.where(inside, whole, np.where(x < low, wide(low), wide(high))), target)
        unset = np.isnan(x)
        return np.where(unset, _stored(np.full(1, nan, np.uint64), target), result) if unset.any() else result

    return typed(run, source, extends_sign=target.kind == "s")


def _integer_to_float(opcode: Opcode, target: Type, source: Type) -> Operation | None:
    mode = opcode.one_of(*MODES)
    if not mode or not opcode.only(*MODES, "sat") or (opcode.has("sat") and target.name == "bf16"):
        return None
    form = FORMATS[target.name]

    def run(a: Array) -> Array:
        x = _integers(a, source)
        if target.name == "f64" and source.bits == 64:
            result = _from_wide(x, mode)
        else:
            result = encode(_odd_float64(x) if source.bits == 64 else x.astype(np.float64), form, mode)
        return saturate(result, form) if opcode.has("sat") else result

    return typed(run, source)


def _sizes(x: Array) -> tuple[Array, Array]:
    """Return the magnitudes of 64-bit integers and which of them are negative."""
    negative = x < 0
    bits = x.astype(np.uint64)
    return np.where(negative, -bits, bits), negative


def _odd_float64(x: Array) -> Array:
    """Return 64-bit integers as float64 rounded to odd."""
    size, negative = _sizes(x)
    lost = (size & np.uint64(0x7FF)) != 0
    large = size >= np.uint64(1 << 53)
    kept = np.where(large, (size >> np.uint64(11)) | lost, size).astype(np.float64)
    result = kept * np.where(large, 2048.0, 1.0)
    return np.where(negative, -result, result)


def _from_wide(x: Array, mode: str) -> Array:
    """Return 64-bit integers as raw f64 bits: the lowest 11 bits of the magnitude, moved to the top, decide the
    rounding.
    """
    size, negative = _sizes(x)
    exponent = np.frexp((size >> np.uint64(11)).astype(np.float64))[1]
    shift = np.maximum(exponent + 11 - 53, 0).astype(np.uint64)
    kept = size >> shift
    rest = size - (kept << shift)
    half = np.where(shift > 0, np.uint64(1) << np.maximum(shift, 1).astype(np.uint64) - np.uint64(1), np.uint64(0))
    if mode == "rn":
        up = (shift > 0) & ((rest > half) | ((rest == half) & (kept & np.uint64(1) != 0)))
    elif mode == "rz":
        up = np.zeros(x.shape, bool)
    else:
        up = (rest != 0) & (negative if mode == "rm" else ~negative)
    result = np.ldexp((kept + up).astype(np.float64), shift.astype(np.int32))
    return np.where(negative, -result, result).view(np.uint64)


def _float_to_float(opcode: Opcode, target: Type, source: Type) -> Operation | None:
    integral = opcode.one_of(*_INTEGRAL)
    mode = opcode.one_of(*MODES)
    if integral is None or mode is None or not opcode.only(*MODES, *_INTEGRAL, "ftz", "sat", "relu", "satfinite"):
        return None
    narrows = target.bits < source.bits or {target.name, source.name} == {"f16", "bf16"}
    half = target.bits == 16
    if narrows != bool(mode) or (integral and (target.name != source.name or mode)):
        return None
    if (opcode.has("relu") or opcode.has("satfinite")) and not (half and source.name == "f32"):
        return None
    if opcode.has("ftz") and "f32" not in (target.name, source.name):
        return None
    to, of = FORMATS[target.name], FORMATS[source.name]

    if to is of and to in (F32, F64) and not opcode.flags:
        return typed(lambda a: a, source)  # a move, which does not even make NaN quiet

    def run(a: Array) -> Array:
        # To f16 the subnormals of f32 are not flushed: they round to zero, or to f16's least number.
        bits = flush(a, of) if opcode.has("ftz") and of is F32 and to is not F16 else a
        if to is of:
            result = quiet(bits, to) if to is F64 else canonical(bits, to)
            if integral:
                numbers = of.numbers(result)
                whole = _INTEGRAL[integral](numbers.astype(np.float64))
                result = np.where(np.isnan(numbers), result, encode(whole, to, "rn"))
        elif to is F32 and of is BF16:
            result = bits.astype(np.uint32) << np.uint32(16)
        elif to is BF16 and of is F32:
            result = shorten(bits, to, 16, mode)
        elif to is F64:
            numbers = of.numbers(bits).astype(np.float64).view(np.uint64)
            kept = canonical(bits, of) if opcode.has("ftz") else bits
            result = np.where(is_nan(bits, of), _nan_of_other_size(kept, of, to), numbers)
        else:
            result = encode(of.numbers(bits).astype(np.float64), to, mode or "rn")
            if of is F64:
                result = np.where(is_nan(bits, of), _nan_of_other_size(bits, of, to), result)
        return _finished(opcode, flush(result, to) if opcode.has("ftz") and to is F32 else result, to, is_nan(a, of))

    return typed(run, source)


def _nan_of_other_size(x: Array, of: FloatFormat, to: FloatFormat) -> Array:
    """Return raw NaNs to or from f64 as such of another format: quiet, with the sign and the upper bits of the
    payload.
    """
    payload = (x & (of.smallest_normal - of.raw(1))).astype(np.uint64)
    wider = to.mantissa_bits - of.mantissa_bits
    payload = payload << np.uint64(wider) if wider > 0 else payload >> np.uint64(-wider)
    sign = np.where(x & of.sign != 0, to.sign, to.raw(0))
    return sign | to.infinity | to.raw(1 << to.mantissa_bits - 1) | payload.astype(to.raw)


def _finished(opcode: Opcode, result: Array, form: FloatFormat, nan: Array) -> Array:
    if opcode.has("satfinite"):
        top = form.infinity - form.raw(1)
        size = result & ~form.sign
        result = np.where((size == form.infinity) & ~nan, result & form.sign | top, result)
    if opcode.has("sat"):
        result = saturate(result, form)
    return relu(result, form) if opcode.has("relu") else result


def _tf32(opcode: Opcode, source: Type) -> Operation | None:
    """Bind the conversion to tf32: f32 with 10 bits of mantissa, the lower 13 bits zero.

    `rna` cuts a NaN too, which may make it an infinity; `satfinite` then takes one off what is not finite, NaN or not.
    """
    mode = opcode.one_of("rna", "rn", "rz")
    if not mode or source.name != "f32" or not opcode.only("rna", "rn", "rz", "satfinite", "relu"):
        return None
    if mode == "rna" and opcode.has("relu"):
        return None

    def run(a: Array) -> Array:
        result = shorten(a, F32, 13, mode)
        kept = ~np.uint32(0x1FFF)
        result = np.where(is_nan(a, F32), (a if mode == "rna" else F32.canonical) & kept, result)
        if opcode.has("satfinite"):
            result = np.where((result & ~F32.sign) >= F32.infinity, result - np.uint32(0x2000), result)
        return relu(result, F32) & kept if opcode.has("relu") else result

    return typed(run, source)


def _packed(opcode: Opcode, target: Type, source: Type) -> Operation | None:
    """Conversions to and from two values in one register; of two sources the first goes to the upper half."""
    if target.element in ("f16", "bf16") and source.name == "f32":
        return _pair_of_halves(opcode, target)
    if target.element in narrow.NAMES and (source.name == "f32" or source.name in ("f16x2", "bf16x2")):
        return _to_narrow(opcode, target, source)
    if source.element in narrow.NAMES and target.name in ("f16x2", "bf16x2"):
        return _from_narrow(opcode, target, source)
    return None


def _pair_of_halves(opcode: Opcode, target: Type) -> Operation | None:
    mode = opcode.one_of("rn", "rz")
    if not mode or not opcode.only("rn", "rz", "relu", "satfinite"):
        return None
    form = FORMATS[target.element]

    def half(a: Array) -> Array:
        if form is BF16:
            encoded = shorten(a, form, 16, mode)
        else:
            encoded = encode(a.view(np.float32).astype(np.float64), form, mode)
        return _finished(opcode, encoded, form, is_nan(a, F32)).astype(np.uint32)

    return typed(lambda a, b: half(a) << np.uint32(16) | half(b), _F32_TYPE, _F32_TYPE)


def _to_narrow(opcode: Opcode, target: Type, source: Type) -> Operation | None:
    scale = target.element == "ue8m0"
    mode = opcode.one_of("rz", "rp") if scale else opcode.one_of("rn")
    if not mode or not opcode.only(mode, "satfinite", "relu") or (scale and opcode.has("relu")):
        return None
    if not scale and (not opcode.has("satfinite") or source.name == "bf16x2"):
        return None
    if scale and source.name == "f16x2":
        return None
    width = target.bits // 2

    def codes(numbers: Array) -> Array:
        if scale:
            return narrow.encode_scale(numbers, mode, opcode.has("satfinite")).astype(np.uint16)
        result = narrow.encode(numbers, target.element)
        if opcode.has("relu"):
            result = np.where(np.signbit(numbers) & ~np.isnan(numbers), np.uint8(0), result)
        return result.astype(np.uint16)

    def pair(upper: Array, lower: Array) -> Array:
        return codes(upper) << np.uint16(width) | codes(lower)

    if source.name == "f32":
        return typed(lambda a, b: pair(*(x.view(np.float32).astype(np.float64) for x in (a, b))), _F32_TYPE, _F32_TYPE)
    form = FORMATS[source.element]

    def from_halves(a: Array) -> Array:
        numbers = form.numbers(split(a, 16)).astype(np.float64)
        return pair(numbers[..., 1], numbers[..., 0])

    return typed(from_halves, source)


def _from_narrow(opcode: Opcode, target: Type, source: Type) -> Operation | None:
    scale = source.element == "ue8m0"
    if not opcode.only("rn", "relu") or not opcode.has("rn") or scale != (target.name == "bf16x2"):
        return None
    if scale and opcode.has("relu"):
        return None
    form = BF16 if scale else F16
    width = np.uint16(source.bits // 2)
    mask = np.uint16((1 << int(width)) - 1)

    def half(codes: Array) -> Array:
        result = encode(narrow.decode(codes, source.element), form, "rn")
        return (relu(result, form) if opcode.has("relu") else result).astype(np.uint32)

    return typed(lambda a: half(a >> width & mask) << np.uint32(16) | half(a & mask), source)
