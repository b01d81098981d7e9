"""Integer arithmetic: sums, products, quotients, carries, dot products of bytes."""

from collections.abc import Callable

import numpy as np

from kernel_lsp.emulate.arithmetic.opcode import SIGNED, UNSIGNED, Opcode, Type
from kernel_lsp.emulate.arithmetic.operation import Array, Operation, typed
from kernel_lsp.emulate.arithmetic.packed import lanewise


def bind(opcode: Opcode) -> Operation | None:
    """Return the operation of an opcode on integers, or None."""
    maker = _MAKERS.get(opcode.name)
    return maker(opcode) if maker is not None and opcode.type.kind in "usb" else None


def numbers(x: Array, kind: Type) -> Array:
    """Return the signed or unsigned integers that raw bits represent."""
    return x.view(SIGNED[kind.bits]) if kind.kind == "s" else x


def raw(x: Array) -> Array:
    """Return the raw bits that represent integers."""
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _arithmetic(opcode: Opcode, compute: Callable[[Array, Array], Array]) -> Operation | None:
    """A binary operation on wrapping integers, plain or packed."""
    kind = opcode.type
    if len(opcode.types) != 1 or kind.bits == 8 or kind.kind == "b" or opcode.flags:
        return None
    if kind.lanes == 1:
        return typed(lambda a, b: raw(compute(numbers(a, kind), numbers(b, kind))), kind, kind)
    half = Type(kind.element, kind.kind, kind.bits // kind.lanes)
    return typed(lanewise(lambda a, b: raw(compute(numbers(a, half), numbers(b, half))), half.bits), kind, kind)


def _sum(opcode: Opcode) -> Operation | None:
    """Bind `add` and `sub`, their saturating form for s32, and those with a carry in or out."""
    kind = opcode.type
    subtract = opcode.name.startswith("sub")
    reads, writes = opcode.name.endswith("c"), opcode.flags == ("cc",)
    if reads or writes:
        if kind.bits < 32 or kind.kind == "b" or opcode.flags not in ((), ("cc",)):
            return None
        carrying = _subtract_carrying if subtract else _add_carrying

        def with_carry(a: Array, b: Array, *carry: Array) -> Array | tuple[Array, ...]:
            result, out = carrying(a, b, *carry)
            return (result, out) if writes else result

        return typed(with_carry, kind, kind, reads_carry=reads, writes_carry=writes)
    if opcode.flags == ("sat",) and kind.name == "s32":
        return typed(lambda a, b: _saturated(_wide(a), -_wide(b) if subtract else _wide(b)), kind, kind)
    return _arithmetic(opcode, np.subtract if subtract else np.add)


def _wide(x: Array) -> Array:
    return x.view(np.int32).astype(np.int64)


def _saturated(a: Array, b: Array) -> Array:
    return np.clip(a + b, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(np.uint32)


def _add_carrying(a: Array, b: Array, carry: Array | None = None) -> tuple[Array, Array]:
    total = a + b
    out = total < a
    if carry is None:
        return total, out
    result = total + carry.astype(a.dtype)
    return result, out | (result < total)


def _subtract_carrying(a: Array, b: Array, borrow: Array | None = None) -> tuple[Array, Array]:
    difference = a - b
    out = a < b
    if borrow is None:
        return difference, out
    taken = borrow.astype(a.dtype)
    return difference - taken, out | (difference < taken)


def high(a: Array, b: Array, kind: Type) -> Array:
    """Return raw upper half of the product of two integers of one type."""
    if kind.bits < 64:
        wide = SIGNED[2 * kind.bits] if kind.kind == "s" else UNSIGNED[2 * kind.bits]
        product = numbers(a, kind).astype(wide) * numbers(b, kind).astype(wide)
        return (product >> wide(kind.bits)).astype(kind.raw)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (middle & mask)
    result = a1 * b1 + (middle >> half) + (other >> half)
    if kind.kind == "s":
        zero = np.uint64(0)
        result = result - np.where(a.view(np.int64) < 0, b, zero) - np.where(b.view(np.int64) < 0, a, zero)
    return result


def _product(opcode: Opcode) -> tuple[Callable[[Array, Array], Array], Type] | None:
    """Return the multiplication of `mul` and `mad` with its result type; None for an unknown mode."""
    kind = opcode.type
    mode = opcode.one_of("lo", "hi", "wide")
    if len(opcode.types) != 1 or kind.bits == 8 or kind.kind == "b" or kind.lanes != 1 or not mode:
        return None
    if mode == "lo":
        return np.multiply, kind
    if mode == "hi":
        return lambda a, b: high(a, b, kind), kind
    if kind.bits == 64:
        return None
    result = Type(f"{kind.kind}{2 * kind.bits}", kind.kind, 2 * kind.bits)
    dtype = SIGNED[result.bits] if kind.kind == "s" else UNSIGNED[result.bits]
    return lambda a, b: raw(numbers(a, kind).astype(dtype) * numbers(b, kind).astype(dtype)), result


def _mul(opcode: Opcode) -> Operation | None:
    product = _product(opcode)
    if product is None or not opcode.only("lo", "hi", "wide"):
        return None
    return typed(product[0], opcode.type, opcode.type)


def _mad(opcode: Opcode) -> Operation | None:
    """Bind `mad` and `madc`: `.cc` writes the carry of the sum, `.hi.sat` clamps the sum of s32."""
    product = _product(opcode)
    if product is None or not opcode.only("lo", "hi", "wide", "cc", "sat"):
        return None
    multiply, result = product
    kind = opcode.type
    reads, writes = opcode.name == "madc", opcode.has("cc")
    if (reads or writes) and (kind.bits < 32 or opcode.has("wide") or opcode.has("sat")):
        return None
    if opcode.has("sat"):
        if kind.name != "s32" or not opcode.has("hi"):
            return None
        return typed(lambda a, b, c: _saturated(_wide(multiply(a, b)), _wide(c)), kind, kind, result)

    def run(a: Array, b: Array, c: Array, *carry: Array) -> Array | tuple[Array, ...]:
        if not (reads or writes):
            return multiply(a, b) + c
        total, out = _add_carrying(multiply(a, b), c, *carry)
        return (total, out) if writes else total

    return typed(run, kind, kind, result, reads_carry=reads, writes_carry=writes)


def _product24(a: Array, b: Array, kind: Type, mode: str) -> Array:
    """Return the lower (`lo`) or upper (`hi`) 32 of the 48 bits of the product of two 24-bit integers."""
    up = np.uint32(8)
    if kind.kind == "s":
        x, y = ((v << up).view(np.int32) >> np.int32(8) for v in (a, b))
        product = (x.astype(np.int64) * y.astype(np.int64)).view(np.uint64)
    else:
        x, y = ((v << up) >> up for v in (a, b))
        product = x.astype(np.uint64) * y.astype(np.uint64)
    return (product >> np.uint64(0 if mode == "lo" else 16)).astype(np.uint32)


def _mul24(opcode: Opcode) -> Operation | None:
    """Bind `mul24` and `mad24`; `.hi.sat.s32` clamps the sum."""
    kind, mode = opcode.type, opcode.one_of("lo", "hi")
    adds = opcode.name == "mad24"
    if not mode or kind.name not in ("u32", "s32") or not opcode.only("lo", "hi", "sat"):
        return None
    if opcode.has("sat"):
        if not adds or mode != "hi" or kind.kind != "s":
            return None
        return typed(lambda a, b, c: _saturated(_wide(_product24(a, b, kind, mode)), _wide(c)), kind, kind, kind)
    if adds:
        return typed(lambda a, b, c: _product24(a, b, kind, mode) + c, kind, kind, kind)
    return typed(lambda a, b: _product24(a, b, kind, mode), kind, kind)


def _sad(opcode: Opcode) -> Operation | None:
    kind = opcode.type
    if opcode.flags or kind.bits == 8 or kind.kind == "b":
        return None

    def run(a: Array, b: Array, c: Array) -> Array:
        return np.where(numbers(a, kind) > numbers(b, kind), a - b, b - a) + c

    return typed(run, kind, kind, kind)


def _quotient(opcode: Opcode) -> Operation | None:
    """Bind `div` and `rem` towards zero. By zero gives all ones; the most negative number by -1 itself, rest 0."""
    kind = opcode.type
    if opcode.flags or kind.bits == 8 or kind.kind == "b" or kind.lanes != 1:
        return None
    remainder = opcode.name == "rem"
    ones = kind.raw(np.iinfo(kind.raw).max)

    def run(a: Array, b: Array) -> Array:
        zero = b == 0
        divisor = np.where(zero, kind.raw(1), b)
        if kind.kind == "u":
            result = a % divisor if remainder else a // divisor
        else:
            negative_a, negative_b = numbers(a, kind) < 0, numbers(divisor, kind) < 0
            x, y = np.where(negative_a, -a, a), np.where(negative_b, -divisor, divisor)
            size = x % y if remainder else x // y
            result = np.where(negative_a if remainder else negative_a ^ negative_b, -size, size)
        return np.where(zero, ones, result)

    return typed(run, kind, kind)


def _sign(opcode: Opcode) -> Operation | None:
    """Bind `neg` and `abs`, which wrap."""
    kind = opcode.type
    if opcode.flags or kind.kind != "s" or kind.bits == 8 or kind.lanes != 1:
        return None
    if opcode.name == "neg":
        return typed(np.negative, kind)
    return typed(lambda a: np.where(numbers(a, kind) < 0, -a, a), kind)


def _extreme(opcode: Opcode) -> Operation | None:
    """Bind `min` and `max`; `.relu` clamps negative results of signed types to zero."""
    pick = np.minimum if opcode.name == "min" else np.maximum
    if opcode.flags == ("relu",) and opcode.type.name in ("s32", "s16x2"):
        plain = Opcode(opcode.name, (), opcode.types)
        return _arithmetic(plain, lambda a, b: np.maximum(pick(a, b), 0))
    return _arithmetic(opcode, pick)


def _bytes(x: Array, kind: Type) -> Array:
    parts = np.ascontiguousarray(x).reshape(*x.shape, 1).view(np.int8 if kind.kind == "s" else np.uint8)
    return parts.astype(np.int32)


def _dp4a(opcode: Opcode) -> Operation | None:
    """Bind `dp4a`: sum of four products of bytes, plus c, wrapping."""
    if opcode.flags or len(opcode.types) != 2 or any(kind.name not in ("u32", "s32") for kind in opcode.types):
        return None
    left, right = opcode.types

    def run(a: Array, b: Array, c: Array) -> Array:
        products = _bytes(a, left) * _bytes(b, right)
        return products.sum(axis=-1, dtype=np.int32).view(np.uint32) + c

    return typed(run, left, right, left)


def _dp2a(opcode: Opcode) -> Operation | None:
    """Bind `dp2a`: sum of two products of a's 16-bit halves with b's lower or upper two bytes, plus c, wrapping."""
    mode = opcode.one_of("lo", "hi")
    if not mode or len(opcode.types) != 2 or any(kind.name not in ("u32", "s32") for kind in opcode.types):
        return None
    left, right = opcode.types

    def run(a: Array, b: Array, c: Array) -> Array:
        halves = np.ascontiguousarray(a).reshape(*a.shape, 1).view(np.int16 if left.kind == "s" else np.uint16)
        chosen = _bytes(b, right)[..., :2] if mode == "lo" else _bytes(b, right)[..., 2:]
        return (halves.astype(np.int32) * chosen).sum(axis=-1, dtype=np.int32).view(np.uint32) + c

    return typed(run, left, right, left)


_MAKERS: dict[str, Callable[[Opcode], Operation | None]] = {
    "add": _sum,
    "addc": _sum,
    "sub": _sum,
    "subc": _sum,
    "mul": _mul,
    "mad": _mad,
    "madc": _mad,
    "mul24": _mul24,
    "mad24": _mul24,
    "sad": _sad,
    "div": _quotient,
    "rem": _quotient,
    "neg": _sign,
    "abs": _sign,
    "min": _extreme,
    "max": _extreme,
    "dp4a": _dp4a,
    "dp2a": _dp2a,
}
