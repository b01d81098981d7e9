"""Moves, logic, shifts, fields and permutations of bits."""

from collections.abc import Callable

import numpy as np

from kernel_lsp.emulate.arithmetic.integer import numbers, raw
from kernel_lsp.emulate.arithmetic.opcode import TYPES, Opcode, Type
from kernel_lsp.emulate.arithmetic.operation import Array, Operation, typed

U32 = TYPES["u32"]


def bind(opcode: Opcode) -> Operation | None:
    """Return the operation of an opcode on bits, or None."""
    maker = _MAKERS.get(opcode.name)
    return maker(opcode) if maker is not None and len(opcode.types) == 1 else None


def _mov(opcode: Opcode) -> Operation | None:
    if opcode.flags or opcode.type.bits == 8:
        return None
    return typed(lambda a: a, opcode.type)


def _logic(opcode: Opcode) -> Operation | None:
    kind = opcode.type
    if opcode.flags or kind.kind not in "bp" or kind.bits == 8:
        return None
    compute = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[opcode.name]
    return typed(compute, kind, kind)


def _not(opcode: Opcode) -> Operation | None:
    if opcode.flags or opcode.type.kind not in "bp" or opcode.type.bits == 8:
        return None
    return typed(np.invert, opcode.type)


def _cnot(opcode: Opcode) -> Operation | None:
    kind = opcode.type
    if opcode.flags or kind.kind != "b" or kind.bits == 8:
        return None
    return typed(lambda a: (a == 0).astype(kind.raw), kind)


def _lop3(opcode: Opcode) -> Operation | None:
    """Bind `lop3`: bit i of the table is the result where (a, b, c) are the bits of i; with a Boolean operation (d,
    p).
    """
    combine = opcode.one_of("or", "and")
    if combine is None or not opcode.only("or", "and") or opcode.type.name != "b32":
        return None

    def run(a: Array, b: Array, c: Array, table: Array, *q: Array) -> Array | tuple[Array, ...]:
        result = np.zeros(1, np.uint32)
        for index in range(8):
            chosen = (table >> np.uint32(index) & np.uint32(1)).astype(bool)
            if not chosen.any():
                continue
            term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
            result = result | (term if chosen.all() else np.where(chosen, term, np.uint32(0)))
        result = np.broadcast_to(result, np.broadcast_shapes(a.shape, b.shape, c.shape, table.shape))
        if not combine:
            return result
        return result, (result != 0) | q[0] if combine == "or" else (result != 0) & q[0]

    return typed(run, U32, U32, U32, U32)


def _shift(opcode: Opcode) -> Operation | None:
    """Bind `shl` and `shr`: amounts beyond the width count as the width."""
    kind = opcode.type
    left = opcode.name == "shl"
    if opcode.flags or kind.kind not in ("b" if left else "bus") or kind.bits == 8 or kind.lanes != 1:
        return None

    def run(a: Array, amount: Array) -> Array:
        by = np.minimum(amount, np.uint32(kind.bits)).astype(kind.raw)
        if left:
            return a << by
        if kind.kind == "s":
            return raw(numbers(a, kind) >> numbers(np.minimum(by, kind.raw(kind.bits - 1)), kind))
        return a >> by

    return typed(run, kind, U32)


def _funnel(opcode: Opcode) -> Operation | None:
    """Bind `shf`: 32 bits of the 64-bit value b:a, shifted left (upper half) or right (lower half)."""
    side, mode = opcode.one_of("l", "r"), opcode.one_of("wrap", "clamp")
    if not side or not mode or len(opcode.flags) != 2 or opcode.type.name != "b32":
        return None

    def run(a: Array, b: Array, c: Array) -> Array:
        by = (c & np.uint32(31) if mode == "wrap" else np.minimum(c, np.uint32(32))).astype(np.uint64)
        whole = b.astype(np.uint64) << np.uint64(32) | a
        return ((whole << by) >> np.uint64(32) if side == "l" else whole >> by).astype(np.uint32)

    return typed(run, U32, U32, U32)


def _ones(length: Array, kind: Type) -> Array:
    """Return a mask of so many low bits; all of them from the width on."""
    by = length.astype(kind.raw)
    return np.where(length >= kind.bits, kind.raw(np.iinfo(kind.raw).max), (kind.raw(1) << by) - kind.raw(1))


def _bfe(opcode: Opcode) -> Operation | None:
    """Bind `bfe`: the field of c bits at bit b; beyond the top it is filled with zeros or the sign."""
    kind = opcode.type
    if opcode.flags or kind.kind not in "us" or kind.bits < 32 or kind.lanes != 1:
        return None

    def run(a: Array, position: Array, length: Array) -> Array:
        position, length = position & np.uint32(255), length & np.uint32(255)
        if kind.kind == "u":
            return (a >> position.astype(kind.raw)) & _ones(length, kind)
        top = kind.bits - 1
        field = numbers(a, kind) >> numbers(np.minimum(position, np.uint32(top)).astype(kind.raw), kind)
        spare = numbers((kind.bits - np.minimum(length, np.uint32(kind.bits))).astype(kind.raw), kind)
        extended = raw((field << np.minimum(spare, top)) >> np.minimum(spare, top))
        return np.where(length == 0, kind.raw(0), extended)

    return typed(run, kind, U32, U32)


def _bfi(opcode: Opcode) -> Operation | None:
    """Bind `bfi`: the low d bits of a put into b at bit c; what would pass the top is lost."""
    kind = opcode.type
    if opcode.flags or kind.kind != "b" or kind.bits < 32:
        return None

    def run(a: Array, b: Array, position: Array, length: Array) -> Array:
        by = (position & np.uint32(255)).astype(kind.raw)
        mask = _ones(length & np.uint32(255), kind) << by
        return (a << by & mask) | (b & ~mask)

    return typed(run, kind, kind, U32, U32)


def leading_zeros(a: Array) -> Array:
    """The number of zero bits above the highest one of raw 32- or 64-bit values, uint32."""
    if a.dtype == np.uint64:
        upper, lower = (a >> np.uint64(32)).astype(np.uint32), a.astype(np.uint32)
        return np.where(upper != 0, leading_zeros(upper), leading_zeros(lower) + np.uint32(32))
    return (32 - np.frexp(a.astype(np.float64))[1]).astype(np.uint32)


def _count(opcode: Opcode) -> Operation | None:
    """Bind `clz` and `popc`."""
    kind = opcode.type
    if opcode.flags or kind.kind != "b" or kind.bits < 32:
        return None
    if opcode.name == "clz":
        return typed(leading_zeros, kind)
    return typed(lambda a: np.bitwise_count(a).astype(np.uint32), kind)


def _bfind(opcode: Opcode) -> Operation | None:
    """Bind `bfind`: the highest bit that differs from the sign (zero for unsigned), all ones where there is none."""
    kind = opcode.type
    if opcode.flags not in ((), ("shiftamt",)) or kind.kind not in "us" or kind.bits < 32 or kind.lanes != 1:
        return None

    def run(a: Array) -> Array:
        searched = np.where(numbers(a, kind) < 0, ~a, a) if kind.kind == "s" else a
        zeros = leading_zeros(searched)
        found = zeros if opcode.flags else np.uint32(kind.bits - 1) - zeros
        return np.where(searched == 0, np.uint32(0xFFFFFFFF), found)

    return typed(run, kind)


_SWAPS = ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F))


def _brev(opcode: Opcode) -> Operation | None:
    kind = opcode.type
    if opcode.flags or kind.kind != "b" or kind.bits < 32:
        return None

    def run(a: Array) -> Array:
        result = a.byteswap()
        for by, pattern in _SWAPS:
            mask, amount = kind.raw(pattern & int(np.iinfo(kind.raw).max)), kind.raw(by)
            result = (result & mask) << amount | result >> amount & mask
        return result

    return typed(run, kind)


_SELECTORS: dict[str, Callable[[Array, int], Array]] = {
    "f4e": lambda c, i: c + np.uint32(i),
    "b4e": lambda c, i: c - np.uint32(i) & np.uint32(7),
    "rc8": lambda c, i: c,
    "ecl": lambda c, i: np.maximum(c, np.uint32(i)),
    "ecr": lambda c, i: np.minimum(c, np.uint32(i)),
    "rc16": lambda c, i: (c & np.uint32(1)) << np.uint32(1) | np.uint32(i & 1),
}


def _prmt(opcode: Opcode) -> Operation | None:
    """Bind `prmt`: each byte of the result is one of the eight of b:a, or its sign, by a selector of four bits in c."""
    mode = opcode.one_of(*_SELECTORS)
    if mode is None or opcode.type.name != "b32" or len(opcode.flags) > 1 or (opcode.flags and not mode):
        return None

    def run(a: Array, b: Array, c: Array) -> Array:
        whole = b.astype(np.uint64) << np.uint64(32) | a
        result = np.uint32(0)
        for i in range(4):
            selector = _SELECTORS[mode](c & np.uint32(3), i) if mode else c >> np.uint32(4 * i) & np.uint32(15)
            shift = ((selector & np.uint32(7)) << np.uint32(3)).astype(np.uint64)
            byte = (whole >> shift).astype(np.uint32) & np.uint32(0xFF)
            if not mode:
                sign = (byte >> np.uint32(7)) * np.uint32(0xFF)
                byte = np.where(selector & np.uint32(8), sign, byte)
            result = result | byte << np.uint32(8 * i)
        return np.asarray(result)

    return typed(run, U32, U32, U32)


def _fns(opcode: Opcode) -> Operation | None:
    """Bind `fns`: the |offset|-th set bit of the mask from the base on, upwards or downwards; all ones for none."""
    if opcode.flags or opcode.type.name != "b32":
        return None

    def run(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base, offset.view(np.int32))
        positions = np.arange(32, dtype=np.uint32)
        set_bits = (mask[..., None] >> positions & np.uint32(1)).astype(bool)
        here, count = base[..., None], np.maximum(np.abs(offset.astype(np.int64)), 1)[..., None]
        upward = set_bits & (positions >= here)
        downward = set_bits & (positions <= here)
        single = set_bits & (positions == here)
        candidates = np.select([offset[..., None] > 0, offset[..., None] < 0], [upward, downward], single)
        rising = np.cumsum(candidates, axis=-1)
        rank = np.where(offset[..., None] < 0, rising[..., -1:] - rising + 1, rising)
        hits = candidates & (rank == count)
        found = np.where(hits.any(-1), hits.argmax(-1), -1)
        found = np.where(base < 32, found, -1)
        # NVIDIA's code compares |offset| as a signed number, which fails for the most negative one.
        found = np.where(offset == np.iinfo(np.int32).min, 0, found)
        return found.astype(np.int32).view(np.uint32)

    return typed(run, U32, U32, U32)


def _szext(opcode: Opcode) -> Operation | None:
    """Bind `szext`: the low b bits of a, extended by zeros or their sign."""
    mode, kind = opcode.one_of("clamp", "wrap"), opcode.type
    if not mode or len(opcode.flags) != 1 or kind.name not in ("u32", "s32"):
        return None

    def run(a: Array, b: Array) -> Array:
        width = b & np.uint32(31) if mode == "wrap" else np.minimum(b, np.uint32(32))
        if kind.kind == "u":
            return a & _ones(width, kind)
        spare = np.minimum(np.uint32(32) - width, np.uint32(31)).view(np.int32)
        extended = ((a.view(np.int32) << spare) >> spare).view(np.uint32)
        return np.where(width == 0, np.uint32(0), extended)

    return typed(run, U32, U32)


def _bmsk(opcode: Opcode) -> Operation | None:
    """Bind `bmsk`: b ones from bit a upwards."""
    mode = opcode.one_of("clamp", "wrap")
    if not mode or len(opcode.flags) != 1 or opcode.type.name != "b32":
        return None

    def run(a: Array, b: Array) -> Array:
        if mode == "wrap":
            a, b = a & np.uint32(31), b & np.uint32(31)
        return _ones(b, U32) << np.minimum(a, np.uint32(32))

    return typed(run, U32, U32)


_MAKERS: dict[str, Callable[[Opcode], Operation | None]] = {
    "mov": _mov,
    "and": _logic,
    "or": _logic,
    "xor": _logic,
    "not": _not,
    "cnot": _cnot,
    "lop3": _lop3,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "bfe": _bfe,
    "bfi": _bfi,
    "clz": _count,
    "popc": _count,
    "bfind": _bfind,
    "brev": _brev,
    "prmt": _prmt,
    "fns": _fns,
    "szext": _szext,
    "bmsk": _bmsk,
}
