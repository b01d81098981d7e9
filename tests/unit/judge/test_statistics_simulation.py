"""The verdict's figures of merit against simulated noise, at a size that fits every test run."""

import functools
import math
from collections import Counter

import numpy as np
import pytest

from kernel_lsp.judge.measure import intervals, rounds
from kernel_lsp.judge.measure.statistics import LookOutcome
from kernel_lsp.policy import ALPHA
from tests.bench.noise import NoisyGpu
from tests.bench.paired_verdict_simulation import (
    SETTINGS,
    Setting,
    Verdict,
    ever_missed,
    gaussian_blocks,
    judge_many,
    race,
    robbins_half_width,
    share,
    spiky_blocks,
)

STABLE = [setting for setting in SETTINGS if not setting.retuned]
RETUNED = [setting for setting in SETTINGS if setting.retuned]
UNTAGGED = [setting for setting in STABLE if not setting.shared]
by_setting = pytest.mark.parametrize("setting", STABLE, ids=lambda setting: setting.name)
by_untagged = pytest.mark.parametrize("setting", UNTAGGED, ids=lambda setting: setting.name)


@functools.cache
def verdicts(setting: Setting, kernel_ms: float, effect: float, pairs: int) -> list[Verdict]:
    return judge_many(setting, kernel_ms, effect, pairs)


def outcomes(found: list[Verdict]) -> Counter[LookOutcome]:
    return Counter(verdict.outcome for verdict in found)


@by_setting
def test_a_kernel_against_itself_is_not_faster(setting: Setting) -> None:
    found = [verdict for kernel_ms in (0.02, 0.1, 1.0) for verdict in verdicts(setting, kernel_ms, 0.0, 100)]
    assert outcomes(found)[LookOutcome.FASTER] <= 0.01 * len(found)
    assert outcomes(found)[LookOutcome.SLOWER] <= 0.01 * len(found)


@pytest.mark.parametrize("setting", RETUNED, ids=lambda setting: setting.name)
def test_a_second_look_spares_a_kernel_that_tunes_itself_most_false_losses(setting: Setting) -> None:
    found = verdicts(setting, 0.1, 0.0, 100)
    at_first = sum(verdict.loss_at_first for verdict in found)
    assert at_first >= 0.15 * len(found), "one side alone takes the slower setting in one pair of four"
    assert outcomes(found)[LookOutcome.SLOWER] <= 0.5 * at_first


@pytest.mark.parametrize("regime", ["quiet", "boost"])
def test_a_kernel_against_itself_costs_little(regime: str) -> None:
    setting = next(setting for setting in SETTINGS if setting.name == regime)
    found = verdicts(setting, 0.1, 0.0, 100)
    assert float(np.median([verdict.gpu_ms for verdict in found])) < 50
    assert outcomes(found)[LookOutcome.AMBIGUOUS] == 0


@by_untagged
@pytest.mark.parametrize("kernel_ms", [0.1, 1.0])
@pytest.mark.parametrize("effect", [-0.02, -0.05])
def test_a_gain_is_found(setting: Setting, kernel_ms: float, effect: float) -> None:
    found = verdicts(setting, kernel_ms, effect, 40)
    # A shared device that nobody tagged is noisiest with kernels too long to repeat.
    required = {0.1: 0.85, 1.0: 0.7}[kernel_ms] if (setting.regime, effect) == ("shared", -0.02) else 0.95
    assert outcomes(found)[LookOutcome.FASTER] >= required * len(found)


@pytest.mark.thorough
def test_reported_intervals_cover_the_truth() -> None:
    covered = [
        verdict.reported.lower <= effect <= verdict.reported.upper
        for setting in UNTAGGED
        if setting.name != "coarse timer"
        for kernel_ms in (0.1, 1.0)
        for effect in (-0.02, -0.05)
        for verdict in verdicts(setting, kernel_ms, effect, 40)
        if verdict.reported is not None
    ]
    assert len(covered) > 400
    assert share(covered) >= 0.95  # more: they allow for processes that differ by more than these simulated ones


@by_untagged
def test_a_real_gain_under_the_margin_is_not_faster(setting: Setting) -> None:
    found = [verdict for kernel_ms in (0.02, 0.1, 1.0) for verdict in verdicts(setting, kernel_ms, -0.005, 30)]
    assert outcomes(found)[LookOutcome.FASTER] <= 0.02 * len(found)


def test_a_device_tagged_shared_gets_no_credit_for_two_percent() -> None:
    tagged = next(setting for setting in SETTINGS if setting.shared)
    assert outcomes(verdicts(tagged, 0.1, -0.02, 10))[LookOutcome.FASTER] == 0
    assert outcomes(verdicts(tagged, 0.1, -0.05, 20))[LookOutcome.FASTER] >= 19


@by_setting
@pytest.mark.parametrize("kernel_ms", [0.02, 0.1, 1.0])
def test_a_candidate_slower_by_30_percent_dies_in_about_four_blocks(setting: Setting, kernel_ms: float) -> None:
    found = verdicts(setting, kernel_ms, math.log(1.3), 30)
    assert float(np.median([verdict.blocks for verdict in found])) == 4
    assert float(np.percentile([verdict.blocks for verdict in found], 90)) <= 6
    assert outcomes(found)[LookOutcome.SLOWER] >= 0.95 * len(found)


@pytest.mark.parametrize("blocks", [gaussian_blocks, spiky_blocks])
@pytest.mark.parametrize(("entrants", "series"), [(1, 400), (16, 1000)])
def test_the_interval_holds_at_every_look(blocks, entrants: int, series: int) -> None:
    alpha = rounds.alpha_of_each(ALPHA, entrants)
    rng = np.random.default_rng(11)
    missed = share(ever_missed(intervals.half_width, blocks(rng, 40), alpha) for _ in range(series))
    # Three standard errors of the simulation above what is allowed.
    assert missed <= alpha + 3 * math.sqrt(alpha / series)


def test_the_boundary_that_was_replaced_misses_too_often_in_a_race() -> None:
    alpha = rounds.alpha_of_each(ALPHA, 16)
    rng = np.random.default_rng(16)
    missed = share(ever_missed(robbins_half_width, gaussian_blocks(rng, 40), alpha) for _ in range(1500))
    assert missed > 1.5 * alpha


def test_a_race_keeps_the_gains_and_loses_the_rest() -> None:
    effects = [-0.05, -0.05, 0.0, 0.0, *[math.log(1.3)] * 4]
    for seed in range(10):
        left = race(NoisyGpu("quiet", np.random.default_rng(seed)), 0.1, effects, 12, seed)
        assert left[5] <= 4
        assert left[-1] == 2
