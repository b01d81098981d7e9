import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lsp.emulate.arithmetic import bind
from tests.unit.emulate import ieee

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
FORMS = ["f16", "bf16", "f32", "f64"]
RAW = {8: np.uint16, 16: np.uint16, 32: np.uint32, 64: np.uint64}
many = settings(max_examples=20, deadline=None)


def limits(kind):
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def integers(kind):
    low, high = limits(kind)
    edges = st.sampled_from([low, low + 1, high - 1, high, 0, 1])
    powers = st.builds(lambda e, d: max(low, min((1 << e) + d, high)), st.integers(0, 64), st.integers(-2, 2))
    return st.one_of(edges, powers, st.integers(low, high))


def raw(value, kind):
    """Raw bits of an integer; 8-bit ones extended to 16 bits."""
    return value % (1 << max(int(kind[1:]), 16))


def wrapped(value, kind):
    low, high = limits(kind)
    return (value - low) % (high - low + 1) + low


def clamped(value, kind):
    low, high = limits(kind)
    return max(low, min(value, high))


def run(opcode, values, dtype):
    operation = bind(opcode)
    assert operation is not None, opcode
    return [int(x) for x in operation.run(np.array(values, dtype))]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
@given(data=st.data())
@many
def test_integers_wrap_or_saturate(source, target, data):
    values = data.draw(st.lists(integers(source), min_size=1, max_size=30))
    given_bits = [raw(value, source) for value in values]
    dtype = RAW[int(source[1:])]
    assert run(f"cvt.{target}.{source}", given_bits, dtype) == [raw(wrapped(v, target), target) for v in values]
    assert run(f"cvt.sat.{target}.{source}", given_bits, dtype) == [raw(clamped(v, target), target) for v in values]
    assert bind(f"cvt.{target}.{source}").extends_sign == (target[0] == "s")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", INTEGERS)
@given(data=st.data())
@many
def test_floats_to_integers_are_clamped(form, kind, data):
    values = data.draw(st.lists(ieee.raw_values(form), min_size=1, max_size=30))
    for mode in ("rn", "rz", "rm", "rp"):

        def converted(bits, mode=mode):
            value = ieee.number(bits, form)
            if isinstance(value, float):
                if math.isnan(value):
                    return 1 << int(kind[1:]) - 1 if form == "f64" or kind[1:] == "64" else 0
                return limits(kind)[value > 0]
            return clamped(ieee.integral(value, mode), kind)

        expected = [raw(wrapped(converted(v), kind), kind) for v in values]
        assert run(f"cvt.{mode}i.{kind}.{form}", values, ieee.RAW[form]) == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", INTEGERS)
@given(data=st.data())
@many
def test_integers_to_floats_are_rounded_once(form, kind, data):
    values = data.draw(st.lists(integers(kind), min_size=1, max_size=30))
    given_bits = [raw(value, kind) for value in values]
    for mode in ("rn", "rz", "rm", "rp"):
        expected = [ieee.rounded(Fraction(v), form, mode) for v in values]
        assert run(f"cvt.{mode}.{form}.{kind}", given_bits, RAW[int(kind[1:])]) == expected


WIDENING = [("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16")]
NARROWING = [*((narrow, wide) for wide, narrow in WIDENING), ("bf16", "f16"), ("f16", "bf16")]


@pytest.mark.parametrize(("target", "source"), NARROWING)
@given(data=st.data())
@many
def test_narrowing_rounds_once(target, source, data):
    values = data.draw(st.lists(ieee.raw_values(source), min_size=1, max_size=30))
    values = [v for v in values if source != "f64" or not ieee.is_nan(v, source)]
    for mode in ("rn", "rz", "rm", "rp"):
        expected = [ieee.rounded(ieee.number(v, source), target, mode, ieee.negative(v, source)) for v in values]
        assert run(f"cvt.{mode}.{target}.{source}", values, ieee.RAW[source]) == expected


@pytest.mark.parametrize(("target", "source"), WIDENING)
@given(data=st.data())
@many
def test_widening_is_exact(target, source, data):
    values = [v for v in data.draw(st.lists(ieee.raw_values(source), min_size=1)) if not ieee.is_nan(v, source)]
    expected = [ieee.rounded(ieee.number(v, source), target, "rn", ieee.negative(v, source)) for v in values]
    assert run(f"cvt.{target}.{source}", values, ieee.RAW[source]) == expected


@pytest.mark.parametrize("form", ["f16", "f32", "f64"])
@given(data=st.data())
@many
def test_rounding_to_integral_values(form, data):
    values = [v for v in data.draw(st.lists(ieee.raw_values(form), min_size=1)) if not ieee.is_nan(v, form)]
    for mode in ("rn", "rz", "rm", "rp"):

        def whole(bits, mode=mode):
            value = ieee.number(bits, form)
            exact = value if isinstance(value, float) else Fraction(ieee.integral(value, mode))
            return ieee.rounded(exact, form, "rn", ieee.negative(bits, form))

        assert run(f"cvt.{mode}i.{form}.{form}", values, ieee.RAW[form]) == [whole(v) for v in values]


def test_saturation_to_finite_values_and_relu():
    values = [0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xC0000000, 0x7FC00000]
    assert run("cvt.rn.satfinite.f16.f32", values, np.uint32) == [0x7BFF, 0xFBFF, 0x7BFF, 0xC000, 0x7FFF]
    assert run("cvt.rn.relu.f16.f32", values, np.uint32) == [0x7C00, 0, 0x7C00, 0, 0x7FFF]
    assert run("cvt.rn.satfinite.bf16.f32", values, np.uint32) == [0x7F7F, 0xFF7F, 0x7F7F, 0xC000, 0x7FFF]


def test_the_first_of_two_sources_goes_to_the_upper_half():
    one, two = np.array([0x3F800000], np.uint32), np.array([0x40000000], np.uint32)
    assert bind("cvt.rn.f16x2.f32").run(one, two).tolist() == [0x3C004000]
    assert bind("cvt.rz.bf16x2.f32").run(one, two).tolist() == [0x3F804000]
    assert bind("cvt.rn.satfinite.e4m3x2.f32").run(one, two).tolist() == [0x3840]


def test_nan_to_and_from_doubles_keeps_sign_and_payload():
    values = [0x7FF8000000000000, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF, 0x7FFA000000000000]
    for mode in ("rn", "rz", "rm", "rp"):
        to = {"f32": [0x7FC00000, 0x7FC00000, 0xFFFFFFFF, 0x7FD00000], "f16": [0x7E00, 0x7E00, 0xFFFF, 0x7E80]}
        to["bf16"] = [0x7FC0, 0x7FC0, 0xFFFF, 0x7FD0]
        for form, expected in to.items():
            assert run(f"cvt.{mode}.{form}.f64", values, np.uint64) == expected
    assert run("cvt.f64.f32", [0x7F800001], np.uint32) == [0x7FF8000020000000]
    assert run("cvt.ftz.f64.f32", [0x7F800001], np.uint32) == [0x7FFFFFFFE0000000]
    assert run("cvt.f64.bf16", [0x7F83], np.uint16) == [0x7FF8600000000000]
    assert run("cvt.f64.f16", [0x7E00], np.uint16) == [0x7FF8000000000000]


def test_a_conversion_to_the_same_type_is_a_move():
    assert run("cvt.f32.f32", [0x7F800001], np.uint32) == [0x7F800001]
    assert run("cvt.f64.f64", [0x7FF0000000000001], np.uint64) == [0x7FF0000000000001]
    assert run("cvt.rni.f64.f64", [0x7FF0000000000001], np.uint64) == [0x7FF8000000000001]


def test_subnormals_that_become_halves_are_not_flushed():
    values = [0x80400000, 0x00000001]
    assert run("cvt.rm.ftz.f16.f32", values, np.uint32) == [0x8001, 0x0000]
    assert run("cvt.rp.ftz.f16.f32", values, np.uint32) == [0x8000, 0x0001]
    assert run("cvt.rp.ftz.sat.f16.f32", values, np.uint32) == [0x0000, 0x0001]


def test_nan_as_tf32():
    assert run("cvt.rn.tf32.f32", [0x7F800001, 0x7FC00000], np.uint32) == [0x7FFFE000, 0x7FFFE000]
    assert run("cvt.rz.relu.tf32.f32", [0x7FC00000], np.uint32) == [0x7FFFE000]
    assert run("cvt.rna.satfinite.tf32.f32", [0x7FC00000, 0x7F800000], np.uint32) == [0x7FBFE000, 0x7F7FE000]


def test_tf32_keeps_ten_bits():
    values = [0x3F801000, 0x3F803000, 0x3F800FFF, 0xBF801000, 0x7F7FFFFF]
    assert run("cvt.rna.tf32.f32", values, np.uint32) == [0x3F802000, 0x3F804000, 0x3F800000, 0xBF802000, 0x7F800000]
    assert run("cvt.rn.tf32.f32", values, np.uint32)[:3] == [0x3F800000, 0x3F804000, 0x3F800000]
    assert run("cvt.rz.tf32.f32", values, np.uint32)[1] == 0x3F802000


def nearest(value, table):
    """Code of the closest value of a table, ties to the even code; beyond its end the last one."""
    return min(range(len(table)), key=lambda code: (abs(table[code] - value), code % 2))


def positive(exponent_bits, mantissa_bits, bias, count):
    found = []
    for code in range(count):
        exponent, mantissa = code >> mantissa_bits, code & (1 << mantissa_bits) - 1
        units = Fraction(mantissa + ((1 << mantissa_bits) if exponent else 0), 1 << mantissa_bits)
        found.append(units * Fraction(2) ** (max(exponent, 1) - bias))
    return found


# OCP Microscaling Formats 1.0 and "FP8 Formats for Deep Learning": positive finite values in the order of their codes.
TABLES = {
    "e4m3": (positive(4, 3, 7, 0x7F), 0x80, 0x7F),
    "e5m2": (positive(5, 2, 15, 0x7C), 0x80, 0x7F),
    "e2m3": (positive(2, 3, 1, 0x20), 0x20, 0x1F),
    "e3m2": (positive(3, 2, 3, 0x20), 0x20, 0x1F),
    "e2m1": (positive(2, 1, 1, 0x08), 0x08, 0x07),
}


def test_the_tables_end_where_the_formats_do():
    assert [float(TABLES[name][0][-1]) for name in TABLES] == [448.0, 57344.0, 7.5, 28.0, 6.0]


@pytest.mark.parametrize("name", TABLES)
@given(data=st.data())
@many
def test_small_formats_round_to_even_and_clamp(name, data):
    table, sign, nan = TABLES[name]
    small = st.builds(lambda v: int(np.float32(v).view(np.uint32)), st.floats(-600, 600, width=32))
    middles = [np.float32((a + b) / 2) for a, b in itertools.pairwise(table)]
    ties = st.sampled_from([int(x.view(np.uint32)) for x in middles])
    values = data.draw(st.lists(st.one_of(ieee.raw_values("f32"), small, ties), min_size=1, max_size=20))

    def code(bits):
        value = ieee.number(bits, "f32")
        if isinstance(value, float):
            return nan if math.isnan(value) else len(table) - 1 | (sign if value < 0 else 0)
        return nearest(abs(value), table) | (sign if ieee.negative(bits, "f32") else 0)

    column = np.array(values, np.uint32)
    width = 4 if name == "e2m1" else 8
    result = bind(f"cvt.rn.satfinite.{name}x2.f32").run(column, column[::-1].copy())
    expected = [code(a) << width | code(b) for a, b in zip(values, reversed(values), strict=True)]
    assert result.tolist() == expected


@pytest.mark.parametrize("name", TABLES)
def test_small_formats_become_halves_exactly(name):
    table, sign, _ = TABLES[name]
    codes = np.arange(len(table), dtype=np.uint16)
    width = 4 if name == "e2m1" else 8
    result = bind(f"cvt.rn.f16x2.{name}x2").run(codes | (codes | sign) << width)
    expected = [ieee.rounded(v, "f16") | ieee.rounded(-v, "f16", zero_sign=True) << 16 for v in table]
    assert result.tolist() == expected


def test_scales_are_powers_of_two():
    one, third = np.array([0x3F800000], np.uint32), np.array([0x3EAAAAAB], np.uint32)
    assert bind("cvt.rz.ue8m0x2.f32").run(one, third).tolist() == [127 << 8 | 125]
    assert bind("cvt.rp.ue8m0x2.f32").run(one, third).tolist() == [127 << 8 | 126]
    large, nan = np.array([0x7F7FFFFF], np.uint32), np.array([0x7FC00000], np.uint32)
    assert bind("cvt.rp.satfinite.ue8m0x2.f32").run(large, nan).tolist() == [0xFE << 8 | 0xFF]
    assert bind("cvt.rn.bf16x2.ue8m0x2").run(np.array([127 << 8 | 0xFF], np.uint16)).tolist() == [0x3F807FFF]


def test_integers_are_clamped_and_packed_above_what_was_there():
    a, b = (np.array(values, np.int32).view(np.uint32) for values in ([300, -300, 5, -1], [-5, 7, 127, -129]))
    before = np.full(4, 0xABCD1234, np.uint32)

    def packed(opcode, *operands):
        return [f"{x:08x}" for x in bind(opcode).run(*operands).tolist()]

    assert packed("cvt.pack.sat.s8.s32.b32", a, b, before) == ["12347ffb", "12348007", "1234057f", "1234ff80"]
    assert packed("cvt.pack.sat.u8.s32.b32", a, b, before) == ["1234ff00", "12340007", "1234057f", "12340000"]
    assert packed("cvt.pack.sat.u4.s32.b32", a, b, before) == ["cd1234f0", "cd123407", "cd12345f", "cd123400"]
    assert packed("cvt.pack.sat.s16.s32", a, b) == ["012cfffb", "fed40007", "0005007f", "ffffff7f"]


@pytest.mark.parametrize(
    "opcode", ["cvt.f16.f32", "cvt.rn.f64.f32", "cvt.s32.f32", "cvt.f32.s32", "cvt.rn.e4m3x2.f32", "cvt.rzi.f32.f16"]
)
def test_conversions_that_do_not_exist_are_not_bound(opcode):
    assert bind(opcode) is None
