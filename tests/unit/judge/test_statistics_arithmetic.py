"""What the statistics of the verdict compute, against known values and by their invariances."""

import math
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_lsp.judge.measure import intervals, statistics
from kernel_lsp.judge.measure.intervals import Interval
from kernel_lsp.judge.measure.statistics import LookOutcome
from kernel_lsp.judge.measure.student_t import t_quantile

# Any textbook's table of Student's t, and R's qt() where tables end.
T_TABLE = [
    (0.975, 1, 12.7062047362),
    (0.975, 2, 4.3026527297),
    (0.975, 3, 3.1824463053),
    (0.975, 9, 2.2621571628),
    (0.975, 10, 2.2281388520),
    (0.975, 30, 2.0422724563),
    (0.975, 100, 1.9839715185),
    (0.975, 200, 1.9718962236),
    (0.95, 4, 2.1318467863),
    (0.95, 20, 1.7247182429),
    (0.995, 5, 4.0321429836),
    (0.995, 15, 2.9467128835),
    (0.9995, 7, 5.4078825208),
    (0.9, 12, 1.3562173341),
]

effects = st.floats(-0.5, 0.5)
series = st.lists(effects, min_size=4, max_size=40)


@pytest.mark.parametrize(("p", "dof", "expected"), T_TABLE)
def test_t_quantile_agrees_with_tables(p: float, dof: int, expected: float) -> None:
    assert t_quantile(p, dof) == pytest.approx(expected, abs=1e-6)
    assert t_quantile(1 - p, dof) == pytest.approx(-expected, abs=1e-6)


@pytest.mark.parametrize("p", [0.5, 0.6, 0.9, 0.975, 0.9985, 0.99999])
def test_t_quantile_agrees_with_the_closed_forms_of_1_2_and_4_degrees(p: float) -> None:
    alpha = 4 * p * (1 - p)
    q = math.cos(math.acos(math.sqrt(alpha)) / 3) / math.sqrt(alpha)
    assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9, abs=1e-9)
    assert t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(alpha / 2), rel=1e-9, abs=1e-9)
    assert t_quantile(p, 4) == pytest.approx(2 * math.sqrt(max(q - 1, 0)), rel=1e-9, abs=1e-7)


@pytest.mark.parametrize("dof", range(1, 201))
def test_t_quantile_inverts_the_integral_of_the_density(dof: int) -> None:
    # With t = sqrt(dof) tan(u) the density becomes a multiple of cos(u)^(dof - 1), smooth on a finite range.
    t = t_quantile(0.975, dof)
    end, steps = math.atan(t / math.sqrt(dof)), 2000
    weights = [1, *([4, 2] * (steps // 2 - 1)), 4, 1]
    integral = math.fsum(w * math.cos(i * end / steps) ** (dof - 1) for i, w in enumerate(weights)) * end / steps / 3
    norm = math.exp(math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)) / math.sqrt(math.pi)
    assert 0.5 + norm * integral == pytest.approx(0.975, abs=1e-10)


@pytest.mark.parametrize(("p", "dof"), [(0.0, 3), (1.0, 3), (0.5, 0)])
def test_t_quantile_refuses_what_has_no_answer(p: float, dof: int) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(p, dof)


def test_few_blocks_are_summarised_plainly() -> None:
    s = intervals.summarise([0.01, 0.02, 0.03, 0.06])
    assert (s.mean, s.n) == (pytest.approx(0.03), 4)
    assert s.deviation == pytest.approx(0.0216024690)


def test_one_outlier_hardly_moves_the_mean_and_is_paid_for_in_the_deviation() -> None:
    calm = [0.010, 0.012, 0.009, 0.011, 0.010, 0.008, 0.011, 0.012]
    spiked = [*calm[:-1], 5.0]
    # median 0.0105, MAD 0.0010: the border is 0.0105 + 3 * 1.4826 * 0.0010.
    s = intervals.summarise(spiked)
    border = 0.0105 + 3 * 1.4826 * 0.001
    drawn_in = [*calm[:-1], border]
    mean = sum(drawn_in) / 8
    deviation = math.sqrt(sum((value - mean) ** 2 for value in drawn_in) / 7)
    assert s.mean == pytest.approx(mean)
    assert s.deviation == pytest.approx(deviation * 7 / 6)


def test_no_series_repeats_better_than_the_floor() -> None:
    assert intervals.summarise([0.02] * 20).deviation == statistics.LEAST_DEVIATION
    assert intervals.summarise([0.02] * 20, floor=0.003).deviation == 0.003


def test_slow_drift_widens_the_deviation_up_to_a_limit() -> None:
    ramp = [i / 1000 for i in range(20)]
    shuffled = random.Random(1).sample(ramp, 20)
    assert intervals.summarise(ramp).deviation == pytest.approx(math.sqrt(1.6 / 0.4) * math.sqrt(35) / 1000)
    assert intervals.summarise(ramp).deviation > intervals.summarise(shuffled).deviation
    alternating = [(-1) ** i / 1000 for i in range(20)]
    assert intervals.summarise(alternating).deviation == pytest.approx(math.sqrt(20 / 19) / 1000)


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 16])
@pytest.mark.parametrize("n", [6, 12, 50, 200])
def test_half_width_is_where_the_bayes_factor_reaches_its_bound(n: int, alpha: float) -> None:
    t2 = n * intervals.half_width(1.0, n, alpha) ** 2
    g = 1 + 4 * n
    factor = g**-0.5 * ((1 + t2 / (n - 1)) / (1 + t2 / ((n - 1) * g))) ** (n / 2)
    assert factor == pytest.approx(1 / alpha)


def test_half_width_nears_the_normal_mixture_of_robbins() -> None:
    n, q = 100_000, 1 + 4 * 100_000
    robbins = math.sqrt(2 * q / (n * n * 4) * math.log(math.sqrt(q) / 0.05))
    assert intervals.half_width(1.0, n) == pytest.approx(robbins, rel=1e-4)


@given(st.integers(5, 300), st.floats(1e-4, 0.2), st.floats(1e-5, 1.0))
def test_half_width_falls_with_blocks_and_alpha_and_scales_with_deviation(n: int, alpha: float, scale: float) -> None:
    width = intervals.half_width(scale, n, alpha)
    assert intervals.half_width(scale, n + 1, alpha) <= width
    assert intervals.half_width(scale, n, alpha / 2) >= width
    assert width == pytest.approx(scale * intervals.half_width(1.0, n, alpha))
    if n >= 10:
        assert width > t_quantile(1 - alpha / 2, n - 1) * scale / math.sqrt(n)


def test_nothing_can_be_said_from_one_block() -> None:
    assert intervals.half_width(0.01, 1) == math.inf
    assert math.isfinite(intervals.half_width(0.01, statistics.MIN_BLOCKS))


@given(st.integers(4, 200), st.floats(1e-4, 0.1))
def test_the_detectable_effect_is_larger_than_the_interval(n: int, deviation: float) -> None:
    assert intervals.min_detectable(deviation, n) > intervals.half_width(deviation, n)


@given(series)
def test_exchanging_a_and_b_mirrors_the_interval(d: list[float]) -> None:
    there, back = statistics.decide(d), statistics.decide([-x for x in d])
    assert back.mean == pytest.approx(-there.mean, abs=1e-12)
    assert back.interval.lower == pytest.approx(-there.interval.upper, abs=1e-9)
    assert back.interval.upper == pytest.approx(-there.interval.lower, abs=1e-9)


@given(series, st.floats(0.1, 10))
def test_summaries_scale_with_their_blocks(d: list[float], scale: float) -> None:
    s, scaled = intervals.summarise(d, 1e-3), intervals.summarise([scale * x for x in d], scale * 1e-3)
    assert scaled.mean == pytest.approx(scale * s.mean, abs=1e-9)
    assert scaled.deviation == pytest.approx(scale * s.deviation, rel=1e-6)


@given(series, effects)
def test_a_shift_of_all_blocks_shifts_the_interval(d: list[float], shift: float) -> None:
    here, there = statistics.decide(d), statistics.decide([x + shift for x in d])
    assert there.interval.lower == pytest.approx(here.interval.lower + shift, abs=1e-6)
    assert there.interval.upper == pytest.approx(here.interval.upper + shift, abs=1e-6)


@given(series, st.floats(1e-3, 0.1), st.booleans())
def test_an_outcome_says_what_its_interval_says(d: list[float], delta: float, spent: bool) -> None:
    decision = statistics.decide(d, delta, spent_ms=1.0 if spent else 0.0, budget_ms=1.0)
    lower, upper = decision.interval.lower, decision.interval.upper
    claims = {
        LookOutcome.SLOWER: lower > 0,
        LookOutcome.SAME: -delta < lower <= 0 and upper < delta,
        LookOutcome.NOT_WORTH_IT: -delta < lower <= 0 and upper >= delta,
        LookOutcome.PROVISIONAL_FASTER: upper < 0 and lower <= -delta and decision.mean <= -delta,
        LookOutcome.AMBIGUOUS: spent and lower <= -delta and (upper >= 0 or decision.mean > -delta),
        LookOutcome.CONTINUE: not spent and lower <= -delta,
    }
    assert claims[decision.outcome]
    assert decision.stop == (decision.outcome is not LookOutcome.CONTINUE)
    assert (decision.detectable is not None) == (decision.outcome is LookOutcome.AMBIGUOUS)


@pytest.mark.parametrize("d", [[], [1.0], [1.0, 1.0, 1.0]])
def test_nothing_is_decided_on_three_blocks_even_with_the_budget_spent(d: list[float]) -> None:
    decision = statistics.decide(d, spent_ms=1e9)
    assert decision.outcome is LookOutcome.CONTINUE
    assert decision.interval == Interval(-math.inf, math.inf)


def test_a_gain_needs_eight_blocks_unless_the_budget_ends_first() -> None:
    d = [-0.30, -0.31, -0.29, -0.30, -0.31, -0.30, -0.29]
    assert statistics.decide(d).outcome is LookOutcome.CONTINUE
    assert statistics.decide([*d, -0.30]).outcome is LookOutcome.PROVISIONAL_FASTER
    assert statistics.decide(d[:4], spent_ms=400).outcome is LookOutcome.PROVISIONAL_FASTER


def test_a_real_gain_under_the_margin_is_the_same() -> None:
    d = [-0.005 + 0.0005 * (-1) ** i for i in range(8)]
    decision = statistics.decide(d, delta=0.01)
    assert decision.interval.upper < 0
    assert decision.outcome is LookOutcome.SAME


def test_a_shared_device_asks_for_a_wider_gain() -> None:
    d = [-0.02 + 0.001 * (-1) ** i for i in range(10)]
    assert statistics.decide(d).outcome is LookOutcome.PROVISIONAL_FASTER
    assert statistics.decide(d, clear=0.02).outcome is LookOutcome.CONTINUE
    assert statistics.confirm(d, d).outcome is LookOutcome.FASTER
    assert statistics.confirm(d, d, clear=0.02).outcome is LookOutcome.AMBIGUOUS


def test_not_a_number_is_never_faster() -> None:
    d = [-0.3] * 7 + [math.nan]
    assert statistics.decide(d).outcome is LookOutcome.CONTINUE
    assert statistics.confirm(d, d).outcome is not LookOutcome.FASTER


def test_a_look_at_200_blocks_takes_under_a_millisecond() -> None:
    rng = random.Random(5)
    d = [rng.gauss(0, 0.01) for _ in range(200)]
    took: list[float] = []
    for _ in range(20):
        start = time.perf_counter()
        statistics.decide(d, delta=1e-6)
        took.append(time.perf_counter() - start)
    assert min(took) < 1e-3
