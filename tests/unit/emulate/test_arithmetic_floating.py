from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lsp.emulate.arithmetic import bind
from tests.unit.emulate import ieee

FORMS = ["f16", "bf16", "f32", "f64"]
MODES = ["rn", "rz", "rm", "rp"]
DIRECTED = [(form, mode) for form in ("f32", "f64") for mode in MODES]
ROUNDED = [("f16", "rn"), ("bf16", "rn"), *DIRECTED]
many = settings(max_examples=25, deadline=None)


def run(opcode, *operands):
    operation = bind(opcode)
    assert operation is not None, opcode
    return operation.run(*operands)


def held(opcode, form, rows, oracle, nan_payload=True):
    """Every row of raw operands gives what the oracle says; f64 may hand on a NaN's payload."""
    columns = [ieee.array(column, form) for column in zip(*rows, strict=True)]
    for row, result in zip(rows, run(opcode, *columns), strict=True):
        expected = oracle(*row)
        if form == "f64" and ieee.is_nan(expected, form) and nan_payload:
            assert ieee.is_nan(int(result), form)
        else:
            assert int(result) == expected, (opcode, [hex(x) for x in row], hex(result), hex(expected))


def rows(form, count):
    return st.lists(st.tuples(*[ieee.raw_values(form)] * count), min_size=1, max_size=30)


def cancelling(form):
    """Triples whose product and third term nearly cancel."""

    def near(a, b, off):
        product = ieee.multiplied(a, b, form)
        top = (1 << ieee.width(form) - 1) - 1
        return a, b, max(0, min((product & top) + off, top)) | (~product & (top + 1))

    one = st.builds(near, ieee.raw_values(form), ieee.raw_values(form), st.integers(-2, 2))
    return st.lists(one, min_size=1, max_size=30)


@pytest.mark.parametrize(("form", "mode"), ROUNDED)
@given(data=st.data())
@many
def test_sums_are_rounded_once(form, mode, data):
    held(f"add.{mode}.{form}", form, data.draw(rows(form, 2)), lambda a, b: ieee.added(a, b, form, mode))


@pytest.mark.parametrize(("form", "mode"), ROUNDED)
@given(data=st.data())
@many
def test_differences_are_sums_with_the_sign_turned(form, mode, data):
    top = 1 << ieee.width(form) - 1
    held(f"sub.{mode}.{form}", form, data.draw(rows(form, 2)), lambda a, b: ieee.added(a, b ^ top, form, mode))


@pytest.mark.parametrize(("form", "mode"), ROUNDED)
@given(data=st.data())
@many
def test_products_are_rounded_once(form, mode, data):
    held(f"mul.{mode}.{form}", form, data.draw(rows(form, 2)), lambda a, b: ieee.multiplied(a, b, form, mode))


def near_ties(form):
    """Triples whose exact result lies a trifle beside the middle between two values."""
    exponent_bits, mantissa_bits = ieee.SHAPES[form]
    one = ((1 << exponent_bits - 1) - 1) << mantissa_bits
    sign = st.sampled_from([0, 1 << ieee.width(form) - 1])

    def half_unit(m, odd, s):
        """(1 + m)(1 - m) times half a unit of the third term: short of the middle by m squared."""
        scale = (mantissa_bits + 1) << mantissa_bits
        return (one | m) - scale, one - 2 * m, one | odd | 1 | s

    def middle(m, tiny, s):
        """A product of which one bit is too many, and a third term that is almost nothing."""
        return one | m, one | 1 << mantissa_bits - 1, tiny | s

    m = st.integers(1, (1 << mantissa_bits) // 3)
    one_of = st.one_of(
        st.builds(half_unit, m, st.integers(0, (1 << mantissa_bits) - 1), sign),
        st.builds(middle, st.integers(0, (1 << mantissa_bits) - 1), st.integers(1, 3), sign),
    )
    return st.lists(one_of, min_size=1, max_size=30)


@pytest.mark.parametrize(("form", "mode"), ROUNDED)
@given(data=st.data())
@many
def test_fused_products_and_sums_are_rounded_once(form, mode, data):
    triples = [row for some in (rows(form, 3), cancelling(form), near_ties(form)) for row in data.draw(some)]
    held(f"fma.{mode}.{form}", form, triples, lambda a, b, c: ieee.fused(a, b, c, form, mode))


@pytest.mark.parametrize(("form", "mode"), DIRECTED)
@given(data=st.data())
@many
def test_quotients_are_rounded_once(form, mode, data):
    held(f"div.{mode}.{form}", form, data.draw(rows(form, 2)), lambda a, b: ieee.divided(a, b, form, mode))


@pytest.mark.parametrize(("form", "mode"), DIRECTED)
@given(data=st.data())
@many
def test_reciprocals_and_roots_are_rounded_once(form, mode, data):
    values = data.draw(rows(form, 1))
    one = {"f32": 0x3F800000, "f64": 0x3FF0000000000000}[form]
    held(f"rcp.{mode}.{form}", form, values, lambda a: ieee.divided(one, a, form, mode))
    held(f"sqrt.{mode}.{form}", form, values, lambda a: ieee.rooted(a, form, mode))


@given(rows=rows("f32", 2), mode=st.sampled_from(MODES), name=st.sampled_from(["add", "mul", "div"]))
@many
def test_flushing_makes_subnormal_operands_and_results_zeros(rows, mode, name):
    oracle = {"add": ieee.added, "mul": ieee.multiplied, "div": ieee.divided}[name]

    def flushing(a, b):
        a, b = ieee.flushed(a, "f32"), ieee.flushed(b, "f32")
        result = oracle(a, b, "f32", mode)
        if name != "add" and result & 0x7FFFFFFF == 0x00800000:  # rounded up to it, with an exponent range without end?
            x, y = ieee.number(a, "f32"), ieee.number(b, "f32")
            exact = x * y if name == "mul" else x / y
            if abs(ieee.number(ieee.rounded(exact * 256, "f32", mode), "f32")) < Fraction(2) ** -118:
                return result & 0x80000000
        return ieee.flushed(result, "f32")

    held(f"{name}.{mode}.ftz.f32", "f32", rows, flushing)


def test_a_quotient_below_the_normal_range_is_flushed_though_it_rounds_up_to_it():
    just_above_one, smallest_normal = 0x3F800001, 0x00800000
    held("div.rp.ftz.f32", "f32", [(smallest_normal, just_above_one)], lambda *_: 0)  # an H200 says so


@pytest.mark.parametrize("form", ["f16", "f32"])
@given(data=st.data())
@many
def test_saturation_clamps_to_the_unit_interval(form, data):
    one = ieee.rounded(Fraction(1), form)

    def clamped(a, b, c):
        result = ieee.fused(a, b, c, form)
        if ieee.is_nan(result, form) or ieee.negative(result, form):
            return 0
        return min(result, one)

    held(f"fma.rn.sat.{form}", form, data.draw(rows(form, 3)), clamped)


@pytest.mark.parametrize("form", ["f16", "bf16"])
@given(data=st.data())
@many
def test_relu_makes_negative_results_zero_and_keeps_nan(form, data):
    def positive(a, b, c):
        result = ieee.fused(a, b, c, form)
        return 0 if ieee.negative(result, form) else result

    held(f"fma.rn.relu.{form}", form, data.draw(rows(form, 3)), positive)


@pytest.mark.parametrize("form", ["f16", "bf16"])
@given(data=st.data())
@many
def test_packed_operations_work_on_each_half(form, data):
    lower, upper = data.draw(rows(form, 3)), data.draw(rows(form, 3))
    pairs = list(zip(lower, upper, strict=False))
    columns = [np.array([a[i] | b[i] << 16 for a, b in pairs], np.uint32) for i in range(3)]
    for (a, b), result in zip(pairs, run(f"fma.rn.{form}x2", *columns), strict=True):
        assert int(result) == ieee.fused(*a, form) | ieee.fused(*b, form) << 16


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["min", "max"])
@given(data=st.data())
@many
def test_a_number_wins_over_nan_and_minus_zero_is_below_zero(form, name, data):
    def key(bits):
        return ieee.number(bits, form), not ieee.negative(bits, form)

    def extreme(a, b):
        if ieee.is_nan(a, form) or ieee.is_nan(b, form):
            other = b if ieee.is_nan(a, form) else a
            return ieee.NAN[form] if ieee.is_nan(other, form) else other
        return {"min": min, "max": max}[name](a, b, key=key)

    held(f"{name}.{form}", form, data.draw(rows(form, 2)), extreme)


def test_min_with_nan_spreading_and_with_the_signs_multiplied():
    nan, one, two = 0x7FC00000, 0x3F800000, 0x40000000
    a, b = ieee.array([nan, one, two | 1 << 31], "f32"), ieee.array([one, two, one], "f32")
    assert [hex(x) for x in run("min.NaN.f32", a, b)] == [hex(x) for x in (0x7FFFFFFF, one, two | 1 << 31)]
    assert [hex(x) for x in run("min.xorsign.abs.f32", a, b)[1:]] == [hex(one), hex(one | 1 << 31)]
    assert [hex(x) for x in run("max.xorsign.abs.f32", a, b)[1:]] == [hex(two), hex(two | 1 << 31)]


def test_three_values_have_an_extreme_too():
    a, b, c = (ieee.array([x], "f32") for x in (0x40400000, 0x3F800000, 0x7FC00000))
    assert run("min.f32", a, b, c)[0] == 0x3F800000
    assert run("max.f32", a, b, c)[0] == 0x40400000


@pytest.mark.parametrize("form", ["f32", "f64"])
@given(data=st.data())
@many
def test_copysign_takes_the_sign_of_the_first(form, data):
    top = 1 << ieee.width(form) - 1
    held(f"copysign.{form}", form, data.draw(rows(form, 2)), lambda a, b: (a & top) | (b & top - 1), nan_payload=False)


def test_classes_of_numbers():
    values = ieee.array([0, 1, 0x00800000, 0x3F800000, 0x7F800000, 0xFF800001, 0x807FFFFF], "f32")
    found = {name: run(f"testp.{name}.f32", values).tolist() for name in ("finite", "infinite", "notanumber")}
    assert found["finite"] == [True, True, True, True, False, False, True]
    assert found["infinite"] == [False, False, False, False, True, False, False]
    assert found["notanumber"] == [False, False, False, False, False, True, False]
    assert run("testp.normal.f32", values).tolist() == [True, False, True, True, False, False, False]
    assert run("testp.subnormal.f32", values).tolist() == [False, True, False, False, False, False, True]
    assert run("testp.number.f32", values).tolist() == [True, True, True, True, True, False, True]


def test_just_below_the_smallest_normal_number_is_flushed_as_on_the_machine():
    a, b = (
        ieee.array([0x3F7FFFFF, 0xBE858700, 0xBBC9D4A4], "f32"),
        ieee.array([0x00800000, 0x81756725, 0x84225A9C], "f32"),
    )
    assert run("mul.ftz.f32", a, b).tolist() == [0, 0, 0]
    assert run("mul.f32", a, b).tolist() == [0x00800000] * 3
    a, b = ieee.array([0x2E62, 0x290F], "f16"), ieee.array([0x1103, 0x1653], "f16")
    assert run("mul.ftz.f16", a, b).tolist() == [0, 0]
    a, b, c = (ieee.array([x], "f16") for x in (0x1BC1, 0x2420, 0x83FF))
    assert run("fma.rn.ftz.f16", a, b, c).tolist() == [0]
    # This one rounds up to it even with 24 bits and no least exponent: it stays.
    assert run("mul.ftz.f32", ieee.array([0x3F0030B3], "f32"), ieee.array([0x00FF9EBF], "f32")).tolist() == [0x00800000]


def nan64(payload, sign=0, quiet=1):
    return sign << 63 | 0x7FF << 52 | quiet << 51 | payload


@pytest.mark.parametrize("mode", MODES)
def test_double_nan_of_the_second_then_the_third_operand_is_handed_on(mode):
    one = 0x3FF0000000000000
    a, b, c = nan64(1, quiet=0), nan64(2, sign=1, quiet=0), nan64(3)
    made_quiet = {a: nan64(1), b: nan64(2, sign=1), c: c}

    def handed(opcode, *operands):
        return int(run(f"{opcode}.{mode}.f64", *(ieee.array([x], "f64") for x in operands))[0])

    assert handed("fma", a, b, c) == made_quiet[b]
    assert handed("fma", a, one, c) == made_quiet[c]
    assert handed("fma", a, one, one) == made_quiet[a]
    for opcode in ("add", "sub", "mul"):
        assert handed(opcode, a, b) == made_quiet[b]
        assert handed(opcode, a, one) == made_quiet[a]
    assert handed("div", a, b) == made_quiet[a]
    assert handed("div", one, b) == made_quiet[b]


def test_the_sign_of_a_double_nan_is_not_turned():
    values = ieee.array([nan64(5, quiet=0), nan64(5, sign=1)], "f64")
    for name in ("neg", "abs"):
        assert run(f"{name}.f64", values).tolist() == [nan64(5), nan64(5, sign=1)]


def test_constants_combine_with_registers_and_with_each_other():
    one = np.array(0x3F800000, np.uint32)
    assert run("add.f32", one, one).shape == ()
    assert run("add.f32", np.full(64, 0x3F800000, np.uint32), one).tolist() == [0x40000000] * 64


@pytest.mark.parametrize(
    "opcode",
    ["add.rz.f16", "fma.f32", "add.sat.f64", "sqrt.rn.f16", "fma.rn.sat.relu.f16", "min.f32x2", "div.f32", "wgmma.f32"],
)
def test_what_ptx_does_not_have_is_not_bound(opcode):
    assert bind(opcode) is None
