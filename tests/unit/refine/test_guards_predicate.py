"""The simplest condition that separates cases that win from cases that lose."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_lsp.refine.guards.predicate import (
    GuardQuantity,
    QuantityKind,
    Side,
    at_the_win,
    find_predicate,
    find_predicates,
    roundest,
)

pytestmark = pytest.mark.fast

W, L, E = Side.WINS, Side.LOSES, Side.EITHER
Workload = tuple[list[GuardQuantity], list[Side]]
SIDES = st.lists(st.sampled_from([W, L, E]), min_size=1, max_size=8)


def size(name: str, *values: int) -> GuardQuantity:
    return GuardQuantity(name, name, QuantityKind.SIZE, values)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    sides = draw(SIDES)
    numbers = st.lists(st.integers(0, 10_000), min_size=len(sides), max_size=len(sides))
    names = st.lists(st.sampled_from(["float16", "float32"]), min_size=len(sides), max_size=len(sides))
    quantities = [size(name, *draw(numbers)) for name in ("rows", "cols")]
    quantities.append(GuardQuantity("x.dtype", "x.dtype", QuantityKind.DTYPE, tuple(draw(names))))
    return quantities, sides


@given(workloads())
def test_all_that_is_found_separates(workload: Workload) -> None:
    quantities, sides = workload
    for predicate in find_predicates(quantities, sides):
        assert 1 <= len(predicate.terms) <= 2
        for case, side in enumerate(sides):
            assert side is E or predicate.holds_on(case) == (side is W)


@given(workloads())
def test_two_terms_are_joined_only_where_one_is_not_enough(workload: Workload) -> None:
    quantities, sides = workload
    found = find_predicate(quantities, sides)
    clear = [case for case, side in enumerate(sides) if side is not E]
    for quantity in quantities[:2]:
        won = [quantity.values[case] for case in clear if sides[case] is W]
        lost = [quantity.values[case] for case in clear if sides[case] is L]
        if won and lost and (min(won) > max(lost) or max(won) < min(lost)):
            assert found is not None
            assert [term.operator in (">=", "<") for term in found.terms] == [True]


@given(workloads(), st.randoms())
def test_the_order_of_cases_does_not_matter(workload: Workload, chance: random.Random) -> None:
    quantities, sides = workload
    order = list(range(len(sides)))
    chance.shuffle(order)
    shuffled = [GuardQuantity(q.text, q.name, q.kind, tuple(q.values[n] for n in order)) for q in quantities]
    found, again = find_predicate(quantities, sides), find_predicate(shuffled, [sides[n] for n in order])
    assert str(found) == str(again)


@given(workloads(), st.sampled_from([W, L]))
def test_a_uniform_workload_has_no_condition(workload: Workload, side: Side) -> None:
    quantities, sides = workload
    assert find_predicate(quantities, [side if one is not E else E for one in sides]) is None


@given(st.integers(0, 10_000), st.integers(1, 10_000))
def test_a_threshold_is_the_roundest_number_between_its_sizes(low: int, more: int) -> None:
    found = roundest(low, low + more)
    assert low < found <= low + more
    rounder = [n for n in range(low + 1, low + more + 1) if n % (2 * (found & -found)) == 0]
    assert found.bit_count() == 1 or not rounder


@pytest.mark.parametrize(
    ("low", "high", "border"), [(512, 8192, 2048), (1000, 1003, 1002), (100, 200, 128), (0, 1, 1), (-5, 0, 0)]
)
def test_thresholds(low: int, high: int, border: int) -> None:
    assert roundest(low, high) == border


def test_a_border_may_move_to_the_size_that_wins() -> None:
    found = find_predicate([size("rows", 16, 500, 8000)], [L, L, W])
    assert found is not None
    assert str(at_the_win(found, [L, L, W])) == "rows >= 8000"
    below = find_predicate([size("rows", 16, 500, 8000)], [W, W, L])
    assert below is not None
    assert str(at_the_win(below, [W, W, L])) == "rows < 501"


@pytest.mark.parametrize(
    ("quantities", "sides", "said"),
    [
        ([size("rows", 16, 512, 8192)], [L, L, W], "rows >= 2048"),
        ([size("rows", 16, 500, 8000)], [L, L, W], "rows >= 2048"),
        ([size("rows", 16, 500, 8000)], [W, W, L], "rows < 2048"),
        ([size("rows", 16, 500, 8000)], [L, E, W], "rows >= 256"),
        ([size("rows", 8, 9, 10), size("cols", 64, 100, 8192)], [L, L, W], "cols >= 1024"),
        ([size("cols", 100, 101, 8192, 8191)], [W, L, W, L], "cols % 4 == 0"),
        ([size("rows", 8, 64, 8, 64), size("cols", 8, 8, 64, 64)], [L, L, L, W], "rows >= 32 and cols >= 32"),
        ([size("rows", 8, 64, 8, 64), size("cols", 8, 8, 64, 64)], [L, W, W, W], "rows >= 32 or cols >= 32"),
        ([size("rows", 8, 64, 512)], [L, W, L], "rows >= 32 and rows < 256"),
        ([size("rows", 8, 8)], [L, W], None),
    ],
)
def test_conditions(quantities: list[GuardQuantity], sides: list[Side], said: str | None) -> None:
    found = find_predicate(quantities, sides)
    assert (found and str(found)) == said


def test_types_and_alignments() -> None:
    kinds = GuardQuantity("x.dtype", "x.dtype", QuantityKind.DTYPE, ("float16", "float32", "float16"))
    assert str(find_predicate([kinds], [W, L, W])) == "x.dtype == float16"
    places = GuardQuantity("x.data_ptr()", "address of x", QuantityKind.ADDRESS, (0, 4, 256))
    assert str(find_predicate([places], [W, L, W])) == "address of x % 16 == 0"
