"""Confirmation of a gain, several cases, and races of many candidates."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_lsp.judge.measure import intervals, rounds, statistics
from kernel_lsp.judge.measure.intervals import Interval
from kernel_lsp.judge.measure.statistics import LookOutcome


def blocks(mean: float, deviation: float, n: int, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(mean, deviation) for _ in range(n)]


def test_a_clear_gain_is_confirmed_with_its_speedup() -> None:
    confirmation = statistics.confirm(blocks(-0.2, 0.01, 10), blocks(-0.2, 0.01, 8, seed=1))
    assert confirmation.outcome is LookOutcome.FASTER
    assert confirmation.interval.lower < -0.2 < confirmation.interval.upper
    speedup, ratio = confirmation.interval.speedup, confirmation.interval.ratio
    assert speedup.lower < math.exp(0.2) < speedup.upper
    assert (ratio.lower, ratio.upper) == pytest.approx((1 / speedup.upper, 1 / speedup.lower))
    assert speedup.lower < confirmation.speedup < speedup.upper
    assert confirmation.detectable is None


@pytest.mark.parametrize(
    ("mean", "deviation", "outcome"),
    [
        (0.0, 0.002, LookOutcome.SAME),
        (-0.006, 0.001, LookOutcome.SAME),
        (0.01, 0.005, LookOutcome.SLOWER),
        (0.007, 0.012, LookOutcome.NOT_WORTH_IT),
        (0.0, 0.05, LookOutcome.AMBIGUOUS),
        (-0.009, 0.004, LookOutcome.AMBIGUOUS),
    ],
)
def test_luck_that_does_not_come_back_is_not_faster(mean: float, deviation: float, outcome: LookOutcome) -> None:
    # Values spread evenly about their mean, so that the interval is known exactly.
    steps = [-1.5, -1.0, -0.6, -0.3, -0.1, 0.1, 0.3, 0.6, 1.0, 1.5]
    confirmation = statistics.confirm([mean + deviation * step for step in steps], blocks(-0.05, 0.005, 8))
    assert confirmation.outcome is outcome
    assert (confirmation.detectable is not None) == (outcome is LookOutcome.AMBIGUOUS)


def test_fresh_blocks_alone_do_not_make_a_gain_worth_having() -> None:
    fresh, earlier = blocks(-0.012, 0.001, 10), blocks(-0.004, 0.001, 40, seed=1)
    confirmation = statistics.confirm(fresh, earlier)
    assert confirmation.mean < -statistics.DELTA < confirmation.pooled
    assert confirmation.outcome is not LookOutcome.FASTER


def test_the_bootstrap_repeats_with_its_seed_and_brackets_the_mean() -> None:
    d = blocks(-0.02, 0.01, 10)
    interval = intervals.bootstrap_interval(d, seed=1)
    assert intervals.bootstrap_interval(d, seed=1) == interval
    assert intervals.bootstrap_interval(d, seed=2) != interval
    assert interval.lower < intervals.summarise(d).mean < interval.upper
    # For Gaussian blocks it is the normal interval with the deviation of the sample.
    s = intervals.summarise(d)
    expected = 2 * 1.96 * s.deviation * math.sqrt(9 / 10) / math.sqrt(10)
    assert interval.upper - interval.lower == pytest.approx(expected, rel=0.15)


def test_too_few_fresh_blocks_confirm_nothing() -> None:
    with pytest.raises(ValueError, match="3 fresh blocks"):
        statistics.confirm([-0.1] * 3, [-0.1] * 8)


def test_intervals_of_anything_have_ratios() -> None:
    assert Interval(-math.inf, math.inf).speedup == Interval(0.0, math.inf)
    assert Interval(-math.log(2), 0.0).speedup == Interval(1.0, pytest.approx(2.0))


@given(st.lists(st.lists(st.floats(-1, 1), min_size=6, max_size=6), min_size=1, max_size=5))
def test_cases_combine_to_the_geometric_mean_of_their_ratios(per_case: list[list[float]]) -> None:
    combined = statistics.combine(per_case)
    for i, value in enumerate(combined):
        product = math.prod(math.exp(case[i]) for case in per_case)
        assert math.exp(value) == pytest.approx(product ** (1 / len(per_case)))


def test_cases_of_different_length_do_not_combine() -> None:
    with pytest.raises(ValueError):
        statistics.combine([[0.1, 0.2], [0.1]])


def test_the_guard_names_the_cases_that_got_slower() -> None:
    per_case = [
        blocks(-0.3, 0.01, 18),
        blocks(0.05, 0.005, 18, seed=1),
        blocks(0.004, 0.001, 18, seed=2),
        blocks(0.02, 0.2, 18, seed=3),
        blocks(0.02, 0.003, 18, seed=4),
    ]
    assert statistics.guard(per_case) == [1, 4]
    assert statistics.guard(per_case, delta=0.03) == [1]


def test_a_round_of_a_race_runs_each_candidate_twice_about_the_middle() -> None:
    schedule = rounds.schedule([3, 5, 8], random.Random(1))
    assert [position for position, candidate in enumerate(schedule) if candidate is None] == [0, 4, 8]
    assert schedule == schedule[::-1]
    assert sorted(candidate for candidate in schedule[:4] if candidate is not None) == [3, 5, 8]


@given(st.integers(1, 9), st.floats(-0.1, 0.1), st.integers(0, 1000))
def test_a_race_measures_through_linear_drift(candidates: int, slope: float, seed: int) -> None:
    rng = random.Random(seed)
    effect = {candidate: rng.uniform(-1, 1) for candidate in range(candidates)}
    schedule = rounds.schedule(list(effect), rng)
    segments = [2.0 + slope * i + (0.0 if c is None else effect[c]) for i, c in enumerate(schedule)]
    assert rounds.differences(schedule, segments) == pytest.approx(effect)


def test_a_race_drops_who_cannot_win_and_ranks_the_rest() -> None:
    race = {
        0: blocks(-0.02, 0.002, 8),
        1: blocks(0.2, 0.01, 8, seed=1),
        2: blocks(-0.10, 0.002, 8, seed=2),
        3: blocks(0.0, 0.001, 8, seed=3),
        4: blocks(-0.01, 0.1, 8, seed=4),
    }
    alive = rounds.survivors(race, entrants=5)
    assert set(alive) == {0, 2, 4}
    assert alive.index(2) < alive.index(0)
    assert rounds.survivors(race, entrants=5, keep=1) == alive[:1]


def test_a_race_of_many_is_more_careful() -> None:
    d = blocks(0.0, 0.002, 6, seed=5)
    assert rounds.survivors({0: d}, entrants=1) == []
    assert rounds.survivors({0: d}, entrants=100) == [0]
    assert rounds.alpha_of_each(0.05, 100) == pytest.approx(0.0005)
