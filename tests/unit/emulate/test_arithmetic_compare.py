import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lsp.emulate.arithmetic import bind
from tests.unit.emulate import ieee

many = settings(max_examples=25, deadline=None)
ORDERED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def holds(name, x, y):
    """A comparison as the ISA's table has it."""
    nan = any(isinstance(v, float) and math.isnan(v) for v in (x, y))
    if name in ("num", "nan"):
        return nan == (name == "nan")
    unordered = name.endswith("u") and len(name) == 3
    if nan:
        return unordered
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[name[:2]]


@pytest.mark.sampled(14)
@pytest.mark.parametrize("form", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", [*ORDERED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"])
@given(data=st.data())
@many
def test_floats_with_and_without_order(form, name, data):
    rows = data.draw(st.lists(st.tuples(ieee.raw_values(form), ieee.raw_values(form)), min_size=1, max_size=30))
    a, b = (ieee.array(column, form) for column in zip(*rows, strict=True))
    p, q = bind(f"setp.{name}.{form}").run(a, b)
    expected = [holds(name, ieee.number(x, form), ieee.number(y, form)) for x, y in rows]
    assert p.tolist() == expected
    assert q.tolist() == [not x for x in expected]


def test_integers_by_their_signs():
    a, b = np.array([0xFFFFFFFF, 1], np.uint32), np.array([1, 1], np.uint32)
    assert bind("setp.lt.s32").run(a, b)[0].tolist() == [True, False]
    assert bind("setp.lt.u32").run(a, b)[0].tolist() == [False, False]
    assert bind("setp.hi.u32").run(a, b)[0].tolist() == [True, False]
    assert bind("setp.ls.u32").run(a, b)[0].tolist() == [False, True]
    assert bind("setp.ne.b32").run(a, b)[0].tolist() == [True, False]
    assert bind("setp.lo.s32") is None
    assert bind("setp.lt.b32") is None


@pytest.mark.parametrize(("combine", "function"), [("and", all), ("or", any), ("xor", lambda pair: pair[0] != pair[1])])
def test_both_results_are_combined_with_the_predicate(combine, function):
    a, b = np.array([1, 1, 2, 2], np.uint32), np.array([1, 1, 1, 1], np.uint32)
    c = np.array([True, False, True, False])
    p, q = bind(f"setp.eq.{combine}.u32").run(a, b, c)
    assert p.tolist() == [function((x, y)) for x, y in zip(a == b, c, strict=True)]
    assert q.tolist() == [function((x, y)) for x, y in zip(a != b, c, strict=True)]


def test_packed_halves_give_one_predicate_each():
    one, two = 0x3C00, 0x4000
    a, b = np.array([one | two << 16], np.uint32), np.array([two | one << 16], np.uint32)
    p, q = bind("setp.lt.f16x2").run(a, b)
    assert (p.tolist(), q.tolist()) == ([True], [False])
    assert bind("set.lt.f16x2.f16x2").run(a, b).tolist() == [one]


def test_flushing_makes_subnormals_equal_to_zero():
    tiny, zero = np.array([0x80000001], np.uint32), np.array([0], np.uint32)
    assert bind("setp.eq.f32").run(tiny, zero)[0].tolist() == [False]
    assert bind("setp.eq.ftz.f32").run(tiny, zero)[0].tolist() == [True]


def test_set_writes_ones_or_one():
    a, b = np.array([1, 2], np.uint32), np.array([1, 1], np.uint32)
    assert bind("set.eq.u32.u32").run(a, b).tolist() == [0xFFFFFFFF, 0]
    assert bind("set.eq.f32.s32").run(a, b).tolist() == [0x3F800000, 0]
    assert bind("set.eq.and.s32.u32").run(a, b, np.array([False, True])).tolist() == [0, 0]


def test_selection():
    a, b = np.array([1, 2, 3, 4], np.uint32), np.array([10, 20, 30, 40], np.uint32)
    assert bind("selp.b32").run(a, b, np.array([True, False, True, False])).tolist() == [1, 20, 3, 40]
    signs = np.array([0, 0x80000000, 5, 0xFFFFFFFF], np.uint32)
    assert bind("slct.u32.s32").run(a, b, signs).tolist() == [1, 20, 3, 40]
    assert bind("slct.u32.f32").run(a, b, signs).tolist() == [1, 2, 3, 40]  # minus zero is not below zero; NaN picks b
