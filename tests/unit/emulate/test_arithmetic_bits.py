import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lsp.emulate.arithmetic import bind

RAW = {16: np.uint16, 32: np.uint32, 64: np.uint64}
many = settings(max_examples=25, deadline=None)


def words(bits):
    return st.one_of(st.integers(0, (1 << bits) - 1), st.sampled_from([0, 1, (1 << bits) - 1, 1 << bits - 1]))


amounts = st.one_of(st.integers(0, 70), st.integers(0, (1 << 32) - 1))
positions = st.one_of(st.integers(0, 70), st.integers(0, 255))


def signed(raw, bits):
    return raw - (1 << bits) if raw >> bits - 1 else raw


def held(opcode, rows, widths, oracle, result_bits):
    operation = bind(opcode)
    assert operation is not None, opcode
    columns = [np.array(column, RAW[bits]) for column, bits in zip(zip(*rows, strict=True), widths, strict=True)]
    result = operation.run(*columns)
    assert result.dtype == RAW[result_bits]
    for row, got in zip(rows, result, strict=True):
        expected = oracle(*row) % (1 << result_bits)
        assert int(got) == expected, (opcode, [hex(x) for x in row], hex(got), hex(expected))


def some(*parts):
    return st.lists(st.tuples(*parts), min_size=1, max_size=30)


@pytest.mark.parametrize("bits", [16, 32, 64])
@given(data=st.data())
@many
def test_logic(bits, data):
    rows = data.draw(some(words(bits), words(bits)))
    held(f"and.b{bits}", rows, [bits] * 2, lambda a, b: a & b, bits)
    held(f"or.b{bits}", rows, [bits] * 2, lambda a, b: a | b, bits)
    held(f"xor.b{bits}", rows, [bits] * 2, lambda a, b: a ^ b, bits)
    single = [row[:1] for row in rows]
    held(f"not.b{bits}", single, [bits], lambda a: ~a, bits)
    held(f"cnot.b{bits}", single, [bits], lambda a: a == 0, bits)
    held(f"mov.b{bits}", single, [bits], lambda a: a, bits)


def test_logic_of_predicates():
    p, q = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert bind("and.pred").run(p, q).tolist() == [True, False, False, False]
    assert bind("xor.pred").run(p, q).tolist() == [False, True, True, False]
    assert bind("not.pred").run(p).tolist() == [False, False, True, True]


@pytest.mark.parametrize("bits", [16, 32, 64])
@given(data=st.data())
@many
def test_shifts_by_the_width_or_more_leave_nothing_but_the_sign(bits, data):
    rows = data.draw(some(words(bits), amounts))
    held(f"shl.b{bits}", rows, [bits, 32], lambda a, n: a << min(n, bits), bits)
    held(f"shr.u{bits}", rows, [bits, 32], lambda a, n: a >> min(n, bits), bits)
    held(f"shr.b{bits}", rows, [bits, 32], lambda a, n: a >> min(n, bits), bits)
    held(f"shr.s{bits}", rows, [bits, 32], lambda a, n: signed(a, bits) >> min(n, bits), bits)


@given(rows=some(words(32), words(32), amounts))
@many
def test_funnel_shifts(rows):
    for mode, limit in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        left = lambda a, b, n, limit=limit: (b << 32 | a) << limit(n) >> 32  # noqa: E731
        right = lambda a, b, n, limit=limit: (b << 32 | a) >> limit(n)  # noqa: E731
        held(f"shf.l.{mode}.b32", rows, [32] * 3, left, 32)
        held(f"shf.r.{mode}.b32", rows, [32] * 3, right, 32)


@given(rows=some(words(32), words(32), words(32)), table=st.integers(0, 255))
@many
def test_every_function_of_three_bits(rows, table):
    def lookup(a, b, c):
        bits = ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1) for i in range(32))
        return sum((table >> index & 1) << i for i, index in enumerate(bits))

    columns = [np.array(column, np.uint32) for column in zip(*rows, strict=True)]
    lut, q = np.array(table, np.uint32), np.arange(len(rows)) % 2 == 0
    expected = [lookup(*row) for row in rows]
    assert bind("lop3.b32").run(*columns, lut).tolist() == expected
    result, either = bind("lop3.or.b32").run(*columns, lut, q)
    assert result.tolist() == expected
    assert either.tolist() == [bool(x) or bool(y) for x, y in zip(expected, q, strict=True)]
    assert bind("lop3.and.b32").run(*columns, lut, q)[1].tolist() == [
        bool(x) and bool(y) for x, y in zip(expected, q, strict=True)
    ]


@pytest.mark.parametrize("bits", [32, 64])
@given(data=st.data())
@many
def test_fields(bits, data):
    top = bits - 1
    rows = data.draw(some(words(bits), positions, positions))

    def extracted(a, at, length, sign):
        fill = (a >> min(at + length - 1, top) & 1) if sign and length else 0
        taken = [a >> at + i & 1 if i < length and at + i <= top else fill for i in range(bits)]
        return sum(bit << i for i, bit in enumerate(taken))

    held(f"bfe.u{bits}", rows, [bits, 32, 32], lambda a, at, n: extracted(a, at, n, False), bits)
    held(f"bfe.s{bits}", rows, [bits, 32, 32], lambda a, at, n: extracted(a, at, n, True), bits)

    def inserted(a, b, at, length):
        for i in range(length):
            if at + i <= top:
                b = b & ~(1 << at + i) | (a >> i & 1) << at + i
        return b

    rows = data.draw(some(words(bits), words(bits), positions, positions))
    held(f"bfi.b{bits}", rows, [bits, bits, 32, 32], inserted, bits)


@pytest.mark.parametrize("bits", [32, 64])
@given(data=st.data())
@many
def test_counting_finding_reversing(bits, data):
    rows = [*data.draw(some(words(bits))), ((1 << bits) - 1,), (0,), ((1 << 53) % (1 << bits) + 1,), ((1 << bits) - 2,)]
    held(f"clz.b{bits}", rows, [bits], lambda a: bits - a.bit_length(), 32)
    held(f"popc.b{bits}", rows, [bits], int.bit_count, 32)
    held(f"brev.b{bits}", rows, [bits], lambda a: int(f"{a:0{bits}b}"[::-1], 2), bits)
    magnitude = lambda a: a if a < 1 << bits - 1 else ~a % (1 << bits)  # noqa: E731
    found = {"u": lambda a: a.bit_length() - 1, "s": lambda a: magnitude(a).bit_length() - 1}
    for kind, highest in found.items():
        shift = lambda a, h=highest: -1 if h(a) < 0 else bits - 1 - h(a)  # noqa: E731
        held(f"bfind.{kind}{bits}", rows, [bits], highest, 32)
        held(f"bfind.shiftamt.{kind}{bits}", rows, [bits], shift, 32)


@given(rows=some(words(32), words(32), words(32)))
@many
def test_bytes_are_permuted_by_selectors(rows):
    def chosen(selectors, a, b):
        source = (b << 32 | a).to_bytes(8, "little")
        result = [source[s & 7] if s < 8 else (0xFF if source[s & 7] & 0x80 else 0) for s in selectors]
        return int.from_bytes(bytes(result), "little")

    held("prmt.b32", rows, [32] * 3, lambda a, b, c: chosen([c >> 4 * i & 15 for i in range(4)], a, b), 32)
    # The tables of the PTX ISA, lowest byte last.
    tables = {
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }
    for mode, table in tables.items():
        by_table = lambda a, b, c, t=table: chosen([int(x) for x in reversed(t[c & 3])], a, b)  # noqa: E731
        held(f"prmt.b32.{mode}", rows, [32] * 3, by_table, 32)


@given(rows=some(words(32), st.integers(0, 40), st.integers(-6, 6)))
@many
def test_the_nth_set_bit(rows):
    def nth(mask, base, offset):
        offset = signed(offset, 32)
        if offset == 0:
            return base if base < 32 and mask >> base & 1 else -1
        left, at = abs(offset), base
        while 0 <= at < 32:
            left -= mask >> at & 1
            if left == 0:
                return at
            at += 1 if offset > 0 else -1
        return -1

    held("fns.b32", [(m, b, o % (1 << 32)) for m, b, o in rows], [32] * 3, nth, 32)


def test_the_least_offset_finds_bit_zero():
    held("fns.b32", [(0xAF5CBAAA, 62, 1 << 31), (0, 0, 1 << 31)], [32] * 3, lambda mask, base, offset: 0, 32)


@given(rows=some(words(32), amounts))
@many
def test_extension_and_masks_by_a_number_of_bits(rows):
    for mode, limit in (("clamp", lambda n: min(n, 32)), ("wrap", lambda n: n & 31)):
        low = lambda a, n, limit=limit: a & (1 << limit(n)) - 1  # noqa: E731
        held(f"szext.{mode}.u32", rows, [32, 32], low, 32)

        def extended(a, n, limit=limit, low=low):
            return signed(low(a, n), limit(n)) if limit(n) else 0

        held(f"szext.{mode}.s32", rows, [32, 32], extended, 32)
        ones = lambda a, n, limit=limit: ((1 << limit(n)) - 1) << min(limit(a), 64)  # noqa: E731
        held(f"bmsk.{mode}.b32", rows, [32, 32], ones, 32)
