import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lsp.emulate.arithmetic import bind

RAW = {16: np.uint16, 32: np.uint32, 64: np.uint64}
TYPES = ["u16", "s16", "u32", "s32", "u64", "s64"]
WIDE = ["u32", "s32", "u64", "s64"]
many = settings(max_examples=25, deadline=None)


def integers(bits):
    edges = st.sampled_from([0, 1, 2, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1, (1 << bits - 1) + 1])
    return st.one_of(edges, st.integers(0, (1 << bits) - 1), st.integers(0, 40))


def value(raw, kind):
    bits = int(kind[1:])
    return raw - (1 << bits) if kind[0] == "s" and raw >> bits - 1 else raw


def held(opcode, rows, widths, oracle, result_bits):
    operation = bind(opcode)
    assert operation is not None, opcode
    columns = [np.array(column, RAW[bits]) for column, bits in zip(zip(*rows, strict=True), widths, strict=True)]
    result = operation.run(*columns)
    assert result.dtype == RAW[result_bits]
    for row, got in zip(rows, result, strict=True):
        expected = oracle(*row) % (1 << result_bits)
        assert int(got) == expected, (opcode, [hex(x) for x in row], hex(got), hex(expected))


def drawn(data, *widths):
    return data.draw(st.lists(st.tuples(*(integers(bits) for bits in widths)), min_size=1, max_size=30))


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
@many
def test_two_operands(kind, data):
    bits = int(kind[1:])
    rows = drawn(data, bits, bits)
    both = [bits, bits]

    def on_values(function):
        return lambda a, b: function(value(a, kind), value(b, kind))

    held(f"add.{kind}", rows, both, on_values(lambda a, b: a + b), bits)
    held(f"sub.{kind}", rows, both, on_values(lambda a, b: a - b), bits)
    held(f"mul.lo.{kind}", rows, both, on_values(lambda a, b: a * b), bits)
    held(f"mul.hi.{kind}", rows, both, on_values(lambda a, b: a * b >> bits), bits)
    held(f"min.{kind}", rows, both, on_values(min), bits)
    held(f"max.{kind}", rows, both, on_values(max), bits)


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
@many
def test_division_goes_towards_zero_and_by_zero_gives_ones(kind, data):
    bits = int(kind[1:])
    rows = drawn(data, bits, bits)

    def quotient(a, b):
        a, b = value(a, kind), value(b, kind)
        return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    def remainder(a, b):
        x, y = value(a, kind), value(b, kind)
        return -1 if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)

    held(f"div.{kind}", rows, [bits, bits], quotient, bits)
    held(f"rem.{kind}", rows, [bits, bits], remainder, bits)


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
@many
def test_products_with_sums(kind, data):
    bits = int(kind[1:])
    rows = drawn(data, bits, bits, bits)
    three = [bits] * 3
    held(f"mad.lo.{kind}", rows, three, lambda a, b, c: value(a, kind) * value(b, kind) + c, bits)
    held(f"mad.hi.{kind}", rows, three, lambda a, b, c: (value(a, kind) * value(b, kind) >> bits) + c, bits)
    held(f"sad.{kind}", rows, three, lambda a, b, c: c + abs(value(a, kind) - value(b, kind)), bits)
    if bits < 64:
        held(
            f"mul.wide.{kind}", [r[:2] for r in rows], three[:2], lambda a, b: value(a, kind) * value(b, kind), 2 * bits
        )
        wide = drawn(data, bits, bits, 2 * bits)
        held(
            f"mad.wide.{kind}",
            wide,
            [bits, bits, 2 * bits],
            lambda a, b, c: value(a, kind) * value(b, kind) + c,
            2 * bits,
        )


@given(rows=st.lists(st.tuples(*[integers(32)] * 3), min_size=1, max_size=30))
@many
def test_saturation_and_24_bits(rows):
    def clamped(x):
        return max(-(1 << 31), min((1 << 31) - 1, x))

    def low24(x, kind):
        x &= 0xFFFFFF
        return x - (1 << 24) if kind == "s32" and x >> 23 else x

    pairs = [row[:2] for row in rows]
    s = lambda x: value(x, "s32")  # noqa: E731
    held("add.sat.s32", pairs, [32, 32], lambda a, b: clamped(s(a) + s(b)), 32)
    held("sub.sat.s32", pairs, [32, 32], lambda a, b: clamped(s(a) - s(b)), 32)
    held("mad.hi.sat.s32", rows, [32] * 3, lambda a, b, c: clamped((s(a) * s(b) >> 32) + s(c)), 32)
    for kind in ("u32", "s32"):
        product = lambda a, b, kind=kind: low24(a, kind) * low24(b, kind)  # noqa: E731
        held(f"mul24.lo.{kind}", pairs, [32, 32], product, 32)
        held(f"mul24.hi.{kind}", pairs, [32, 32], lambda a, b, p=product: p(a, b) >> 16, 32)
        held(f"mad24.lo.{kind}", rows, [32] * 3, lambda a, b, c, p=product: p(a, b) + c, 32)
        held(f"mad24.hi.{kind}", rows, [32] * 3, lambda a, b, c, p=product: (p(a, b) >> 16) + c, 32)
    held(
        "mad24.hi.sat.s32",
        rows,
        [32] * 3,
        lambda a, b, c: clamped(s(low24(a, "s32") * low24(b, "s32") >> 16 & 0xFFFFFFFF) + s(c)),
        32,
    )


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
@given(data=st.data())
@many
def test_signs_wrap(kind, data):
    bits = int(kind[1:])
    rows = drawn(data, bits)
    held(f"neg.{kind}", rows, [bits], lambda a: -a, bits)
    held(f"abs.{kind}", rows, [bits], lambda a: abs(value(a, kind)), bits)


@pytest.mark.parametrize("kind", WIDE)
@given(data=st.data())
@many
def test_carries_make_long_sums(kind, data):
    """Two words added or subtracted with a carry are the sum and difference of numbers twice as long."""
    bits = int(kind[1:])
    rows = drawn(data, bits, bits, bits, bits)
    low_a, high_a, low_b, high_b = (np.array(column, RAW[bits]) for column in zip(*rows, strict=True))
    for name, sign in (("add", 1), ("sub", -1)):
        low, carry = bind(f"{name}.cc.{kind}").run(low_a, low_b)
        high, out = bind(f"{name}c.cc.{kind}").run(high_a, high_b, carry)
        plain = bind(f"{name}c.{kind}").run(high_a, high_b, carry)
        assert (plain == high).all()
        for i, (la, ha, lb, hb) in enumerate(rows):
            total = (ha << bits | la) + sign * (hb << bits | lb)
            assert int(high[i]) << bits | int(low[i]) == total % (1 << 2 * bits)
            assert bool(out[i]) == (not 0 <= total < 1 << 2 * bits)


@pytest.mark.parametrize("kind", WIDE)
@given(data=st.data())
@many
def test_products_with_carries(kind, data):
    bits = int(kind[1:])
    rows = drawn(data, bits, bits, bits, 16)
    a, b, c, d = (np.array(column, np.uint64).astype(RAW[bits]) for column in zip(*rows, strict=True))
    carry = (d & 1).astype(bool)
    for part, shift in (("lo", 0), ("hi", bits)):
        result, out = bind(f"madc.{part}.cc.{kind}").run(a, b, c, carry)
        for i, row in enumerate(rows):
            product = (value(row[0], kind) * value(row[1], kind) >> shift) % (1 << bits)
            total = product + row[2] + int(carry[i])
            assert (int(result[i]), bool(out[i])) == (total % (1 << bits), total >= 1 << bits)


@given(rows=st.lists(st.tuples(*[integers(32)] * 3), min_size=1, max_size=30))
@many
def test_dot_products_of_bytes(rows):
    def part(x, index, size, kind):
        x = x >> index * size & (1 << size) - 1
        return x - (1 << size) if kind == "s32" and x >> size - 1 else x

    def dot(left, right, width, first):
        def whole(a, b, c):
            count = min(4, 32 // width)
            return c + sum(part(a, i, width, left) * part(b, first + i, 8, right) for i in range(count))

        return whole

    for left, right in itertools.product(("u32", "s32"), repeat=2):
        held(f"dp4a.{left}.{right}", rows, [32] * 3, dot(left, right, 8, 0), 32)
        held(f"dp2a.lo.{left}.{right}", rows, [32] * 3, dot(left, right, 16, 0), 32)
        held(f"dp2a.hi.{left}.{right}", rows, [32] * 3, dot(left, right, 16, 2), 32)


@given(rows=st.lists(st.tuples(*[integers(32)] * 2), min_size=1, max_size=30))
@many
def test_packed_integers_do_not_spill_over(rows):
    def halves(function, kind):
        def whole(a, b):
            parts = [function(value(a >> s & 0xFFFF, kind), value(b >> s & 0xFFFF, kind)) & 0xFFFF for s in (0, 16)]
            return parts[0] | parts[1] << 16

        return whole

    for kind in ("u16", "s16"):
        held(f"add.{kind}x2", rows, [32, 32], halves(lambda a, b: a + b, kind), 32)
        held(f"min.{kind}x2", rows, [32, 32], halves(min, kind), 32)
        held(f"max.{kind}x2", rows, [32, 32], halves(max, kind), 32)
    held("max.relu.s16x2", rows, [32, 32], halves(lambda a, b: max(a, b, 0), "s16"), 32)
    held("min.relu.s32", rows, [32, 32], lambda a, b: max(min(value(a, "s32"), value(b, "s32")), 0), 32)


def test_wider_registers_are_cut_to_the_type():
    wide = np.array([0x1_0000_0003], np.uint64)
    assert bind("add.u32").run(wide, wide)[0] == 6
