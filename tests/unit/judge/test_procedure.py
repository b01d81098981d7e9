"""From blocks to an outcome: when a first look ends, when a second one is needed, and how both conclude."""

import itertools
import math
from collections.abc import Sequence

import pytest

from kernel_lsp import policy
from kernel_lsp.config.settings import JudgeSettings
from kernel_lsp.judge.measure.intervals import Interval, summarise
from kernel_lsp.judge.measure.procedure import (
    Conclusion,
    DecisionRule,
    FirstLook,
    SecondLook,
    confirm,
    over_processes,
)
from kernel_lsp.judge.measure.statistics import Decision, LookOutcome
from tests.bench.paired_verdict_simulation import Case

SETTINGS = JudgeSettings()
LONG = Case("cold", 1e3)
SHORT = Case("cold", 20.0)
HOSTED = Case("cold", 370.0, captured=False)
SCATTER = (0.3, -0.3, -1.2, 1.2, 0.7, -0.7, -0.1, 0.1)


def rule(*cases: Case, shared: bool = False, allow_slower_cases: bool = False) -> DecisionRule:
    settings = JudgeSettings(allow_slower_cases=allow_slower_cases)
    return DecisionRule.of(cases or (LONG,), settings, shared=shared)


def scattered(mean: float, scatter: float, count: int = 0) -> list[float]:
    """Values that scatter about the mean in a fixed order, 300 of them unless told."""
    about = itertools.islice(itertools.cycle(SCATTER), count or 300)
    return [mean + each * scatter for each in about]


def looked(
    blocks: Sequence[float], by: DecisionRule | None = None, block_ms: float = 1.0
) -> tuple[FirstLook, list[Decision]]:
    """A first look at one case, with its decision after each block."""
    look, seen = FirstLook(by or rule()), list[Decision]()
    for block in blocks:
        seen.append(look.add([block], block_ms))
        if seen[-1].stop:
            break
    return look, seen


def concluded(
    claim: LookOutcome, earlier: Sequence[float], fresh: Sequence[float], by: DecisionRule | None = None
) -> Conclusion:
    return confirm(by or rule(), claim, [earlier], [fresh], seed=1)


# The rule


def test_the_blur_of_a_case_is_a_share_of_its_time() -> None:
    assert rule(SHORT).blur == pytest.approx(0.5 / 20)
    assert rule(Case("short", 5.0)).blur == pytest.approx(0.1 / 5)
    assert rule(SHORT).clear == rule(SHORT).blur


def test_over_cases_blur_and_scatter_average_like_independent_errors() -> None:
    one, four = rule(SHORT), rule(SHORT, SHORT, SHORT, SHORT)
    assert four.blur == pytest.approx(one.blur / 2)
    assert four.scatter == pytest.approx(one.scatter / 2)
    assert four.case_clear == (one.blur,) * 4


def test_a_shared_gpu_asks_for_two_margins_and_blurs_no_more() -> None:
    shared = rule(LONG, shared=True)
    assert shared.clear == pytest.approx(2 * policy.DELTA)
    assert shared.case_clear == (shared.clear,)
    assert shared.blur == rule(LONG).blur
    assert rule(Case("short", 2.0), shared=True).clear == pytest.approx(0.05)


def test_an_interval_is_widened_by_the_scatter_of_processes_and_places() -> None:
    places = math.sqrt(2 / policy.PLACES) * policy.PLACE_SCATTER_SHARE
    blocks = policy.PROCESS_SCATTER_DEVIATIONS * 0.004
    scatter = math.hypot(0.12 / 20, policy.PROCESS_SCATTER_SHARE["cold"], places, blocks)
    widened = rule(SHORT).widened(Interval(-0.03, -0.01), 0.004)
    assert (widened.lower + widened.upper) / 2 == pytest.approx(-0.02)
    assert (widened.upper - widened.lower) / 2 == pytest.approx(math.hypot(0.01, 1.959964 * scatter))


# The first look


@pytest.mark.parametrize(
    ("mean", "scatter", "outcome", "blocks"),
    [
        (0.10, 0.01, LookOutcome.SLOWER, 4),
        (0.02, 0.01, LookOutcome.PROVISIONAL_SLOWER, 8),
        (0.015, 0.025, LookOutcome.NOT_WORTH_IT, 16),  # a loss or none, which 16 blocks do not tell
        (0.03, 0.06, LookOutcome.NOT_WORTH_IT, 17),
        (0.004, 0.005, LookOutcome.SAME, 8),
        (0.0, 0.001, LookOutcome.SAME, 4),
        (-0.05, 0.005, LookOutcome.PROVISIONAL_FASTER, 8),
    ],
)
def test_a_look_ends_when_it_is_known_what_a_difference_is(
    mean: float, scatter: float, outcome: LookOutcome, blocks: int
) -> None:
    look, seen = looked(scattered(mean, scatter), block_ms=policy.FOLLOWED_MS / 10)
    assert (seen[-1].outcome, len(seen)) == (outcome, blocks)
    assert look.decision == seen[-1]
    assert [decision.stop for decision in seen] == [False] * (blocks - 1) + [True]


def test_only_what_could_be_a_claim_is_looked_at_again() -> None:
    ends = {looked(scattered(mean, 0.001))[1][-1] for mean in (-0.05, -0.005, 0.0, 0.005, 0.02, 0.3)}
    assert {end.outcome for end in ends if end.provisional} == {
        LookOutcome.PROVISIONAL_FASTER,
        LookOutcome.PROVISIONAL_SLOWER,
    }
    assert {end.outcome for end in ends if not end.provisional} == {LookOutcome.SAME, LookOutcome.SLOWER}


def test_a_loss_that_may_become_a_clear_one_is_followed() -> None:
    _, seen = looked(scattered(0.08, 0.03))
    assert seen[-1].outcome is LookOutcome.SLOWER
    assert seen[-1].interval.lower > rule().clear_loss
    earlier = seen[-2]
    assert earlier.interval.lower > rule().clear, "it was a loss before, though not a clear one"
    assert earlier.outcome is LookOutcome.CONTINUE
    assert len(seen) <= policy.FOLLOWED_BLOCKS


def test_short_blocks_are_followed_for_longer() -> None:
    blocks = scattered(0.004, 0.02)
    long, short = looked(blocks, block_ms=policy.FOLLOWED_MS / 10)[1], looked(blocks)[1]
    assert (long[-1].outcome, len(long)) == (LookOutcome.NOT_WORTH_IT, policy.FOLLOWED_BLOCKS)
    assert (short[-1].outcome, len(short)) == (LookOutcome.SAME, 59)


def test_a_loss_of_launches_that_the_host_is_part_of_is_always_looked_at_again() -> None:
    clear = scattered(0.3, 0.03)
    assert looked(clear)[1][-1].outcome is LookOutcome.SLOWER
    assert looked(clear, rule(HOSTED))[1][-1].outcome is LookOutcome.PROVISIONAL_SLOWER
    long = Case("cold", 2 * policy.HOSTED_LAUNCH_US, captured=False)
    assert looked(clear, rule(long))[1][-1].outcome is LookOutcome.SLOWER, "jitter is a small part of these"


def test_a_loss_within_the_placement_blur_is_none() -> None:
    _, seen = looked(scattered(0.02, 0.002), rule(SHORT))
    assert seen[-1].interval.lower > 0
    assert seen[-1].outcome is LookOutcome.SAME


def test_a_gain_within_the_placement_blur_ends_the_look_soon() -> None:
    _, seen = looked(scattered(-0.018, 0.002), rule(SHORT))
    assert (seen[-1].outcome, len(seen)) == (LookOutcome.SAME, 5)


def test_beside_others_a_gain_under_two_margins_is_not_called_the_same() -> None:
    _, seen = looked(scattered(-0.018, 0.002), rule(LONG, shared=True))
    assert seen[-1].outcome is LookOutcome.AMBIGUOUS


def test_nothing_is_followed_beyond_the_gpu_time_there_is() -> None:
    _, seen = looked(scattered(0.015, 0.025), block_ms=30.0)
    assert (seen[-1].outcome, len(seen)) == (LookOutcome.NOT_WORTH_IT, 10)
    _, seen = looked(scattered(0.02, 0.01), block_ms=50.0)
    assert (seen[-1].outcome, len(seen)) == (LookOutcome.PROVISIONAL_SLOWER, 6)


def test_several_cases_count_as_their_geometric_mean() -> None:
    look = FirstLook(rule(LONG, LONG))
    for value in scattered(0.0, 0.001, 3):
        assert not look.add([value + 0.05, value - 0.05], 1.0).stop
    decision = look.add([0.05, -0.05], 1.0)
    assert (decision.outcome, decision.blocks) == (LookOutcome.SAME, 4)
    assert look.gpu_ms == 4.0


def test_a_block_needs_a_value_for_each_case() -> None:
    look = FirstLook(rule(LONG, LONG))
    with pytest.raises(ValueError, match="zip"):
        look.add([0.1], 1.0)


def test_discarded_blocks_cost_time_and_tell_nothing() -> None:
    look, _ = looked(scattered(0.0, 0.05, 5))
    before = look.decision
    assert look.discard(7.0) == before
    assert (look.discarded, look.gpu_ms) == (1, 12.0)


def test_a_clock_that_never_keeps_still_ends_the_look() -> None:
    look, seen = looked(scattered(0.0, 0.05, 5))
    assert not seen[-1].stop
    decisions = [look.discard(1.0) for _ in range(policy.MOST_DISCARDED_BLOCKS + 1)]
    assert [decision.stop for decision in decisions] == [False] * policy.MOST_DISCARDED_BLOCKS + [True]
    assert decisions[-1].outcome is LookOutcome.AMBIGUOUS

    look = FirstLook(rule())
    for _ in range(policy.MOST_DISCARDED_BLOCKS):
        look.discard(1.0)
    with pytest.raises(TimeoutError, match="never kept still"):
        look.discard(1.0)


# Looks at a slow baseline


@pytest.mark.parametrize(
    ("blocks", "outcome"),
    [
        ([-3.0, -3.001], LookOutcome.PROVISIONAL_FASTER),
        ([-0.05, -0.06], LookOutcome.AMBIGUOUS),  # 12.7 standard errors of 0.5 %
        ([-0.05, -0.051, -0.049, -0.05], LookOutcome.PROVISIONAL_FASTER),
        ([0.0, 0.0005, -0.0005, 0.0], LookOutcome.SAME),
        ([0.3, 0.301], LookOutcome.SLOWER),
        ([0.03, 0.031, 0.03, 0.03], LookOutcome.PROVISIONAL_SLOWER),
        ([0.004, -0.004], LookOutcome.AMBIGUOUS),
    ],
)
def test_a_fixed_number_of_pairs_is_decided_on_once(blocks: list[float], outcome: LookOutcome) -> None:
    by = DecisionRule.of([LONG], SETTINGS, shared=False, pairs=len(blocks))
    look, seen = looked(blocks, by, block_ms=3000.0)
    assert [decision.outcome for decision in seen] == [LookOutcome.CONTINUE] * (len(blocks) - 1) + [outcome]
    if look.decision.provisional:
        second = SecondLook(look)
        for block in blocks:
            second.add([block])
        found = second.conclude(seed=1)
        assert found.outcome is LookOutcome[outcome.name.removeprefix("PROVISIONAL_")]
        places = 1.96 * policy.PLACE_SCATTER_SHARE
        assert found.interval.upper - found.interval.lower > 2 * places


def test_an_interval_is_wider_where_blocks_took_few_places_of_memory() -> None:
    """Blocks of one place agree, and yet their mean is off by what places scatter, on either side."""
    fresh, by = [scattered(-0.05, 0.0, 10)], rule(LONG)
    halves = {
        memories: (found.upper - found.lower) / 2
        for memories in (1, 4, policy.PLACES)
        for found in [confirm(by, GAIN, fresh, fresh, seed=1, memories=memories).interval]
    }
    assert halves[1] > 1.96 * math.sqrt(2) * policy.PLACE_SCATTER_SHARE
    assert halves[4] ** 2 - halves[16] ** 2 == pytest.approx(
        (1.96 * policy.PLACE_SCATTER_SHARE) ** 2 * 2 * 3 / 16, rel=1e-3
    )


def test_short_launches_find_their_inputs_in_the_cache_wherever_these_lie() -> None:
    by = rule(Case("short", 5.0))
    interval = Interval(-0.03, -0.01)
    assert by.widened(interval, 0.001, 1) == by.widened(interval, 0.001, policy.PLACES)


def test_what_seldom_reads_and_writes_at_once_scatters_less_in_squares() -> None:
    shares = (0.0, 0.5, 1.0)
    halves = [
        (found.upper - found.lower) / 2
        for share in shares
        for by in [DecisionRule.of([LONG], SETTINGS, shared=False, copying=[share])]
        for found in [by.widened(Interval(-0.02, -0.02), 0.0)]
    ]
    added = [half**2 - halves[0] ** 2 for half in halves]
    assert added[1] == pytest.approx(added[2] / 4)
    assert rule(LONG).widened(Interval(-0.02, -0.02), 0.0).upper + 0.02 == pytest.approx(halves[2])
    one_place = DecisionRule.of([LONG], SETTINGS, shared=False, copying=[0.0]).widened(Interval(0.0, 0.0), 0.0, 1)
    assert one_place.upper == pytest.approx(halves[0])


def test_two_pairs_find_a_case_that_got_slower() -> None:
    by = DecisionRule.of([LONG, LONG], SETTINGS, shared=False, pairs=2)
    fresh = [[-3.0, -3.001], [0.2, 0.201]]
    found = confirm(by, GAIN, fresh, fresh, seed=1)
    assert (found.outcome, found.slower_cases) == (LookOutcome.NOT_WORTH_IT, (1,))


# The second look


GAIN, LOSS = LookOutcome.PROVISIONAL_FASTER, LookOutcome.PROVISIONAL_SLOWER


@pytest.mark.parametrize(
    ("claim", "earlier", "fresh", "scatter", "outcome"),
    [
        (GAIN, -0.05, -0.05, 0.005, LookOutcome.FASTER),
        (GAIN, -0.05, 0.0, 0.002, LookOutcome.SAME),
        (GAIN, -0.05, 0.0, 0.05, LookOutcome.AMBIGUOUS),
        (GAIN, -0.05, 0.05, 0.005, LookOutcome.NOT_WORTH_IT),  # the looks contradict each other
        (LOSS, 0.02, 0.02, 0.005, LookOutcome.SLOWER),
        (LOSS, 0.02, 0.0, 0.002, LookOutcome.SAME),
        (LOSS, 0.02, 0.005, 0.015, LookOutcome.NOT_WORTH_IT),
        (LOSS, 0.02, 0.0, 0.05, LookOutcome.AMBIGUOUS),
        (LOSS, 0.02, -0.05, 0.005, LookOutcome.AMBIGUOUS),  # nor is a loss followed by a gain a gain
    ],
)
def test_a_claim_holds_if_fresh_blocks_make_it_again(
    claim: LookOutcome, earlier: float, fresh: float, scatter: float, outcome: LookOutcome
) -> None:
    found = concluded(claim, scattered(earlier, 0.005, 8), scattered(fresh, scatter, 10))
    assert found.outcome is outcome


def test_a_loss_within_the_blur_is_not_confirmed() -> None:
    earlier, fresh = scattered(0.04, 0.002, 8), scattered(0.02, 0.002, 10)
    assert concluded(LOSS, earlier, fresh).outcome is LookOutcome.SLOWER
    assert concluded(LOSS, earlier, fresh, rule(SHORT)).outcome is LookOutcome.SAME


def test_a_gain_shows_the_interval_of_any_pair_of_processes() -> None:
    found = concluded(GAIN, scattered(-0.05, 0.005, 8), scattered(-0.05, 0.005, 10), rule(SHORT))
    assert found.outcome is LookOutcome.FASTER
    deviation = summarise(scattered(-0.05, 0.005, 10)).deviation
    assert found.interval == rule(SHORT).widened(found.measured.interval, deviation)
    assert found.interval.lower < found.measured.interval.lower < found.measured.interval.upper < found.interval.upper


@pytest.mark.parametrize(("allowed", "outcome"), [(False, LookOutcome.NOT_WORTH_IT), (True, LookOutcome.FASTER)])
def test_a_gain_may_not_make_a_single_case_slower_unless_that_is_allowed(allowed: bool, outcome: LookOutcome) -> None:
    by = rule(LONG, LONG, allow_slower_cases=allowed)
    earlier = [scattered(-0.3, 0.005, 8), scattered(0.05, 0.005, 8)]
    fresh = [scattered(-0.3, 0.005, 10), scattered(0.05, 0.005, 10)]
    found = confirm(by, GAIN, earlier, fresh, seed=1)
    assert (found.outcome, found.slower_cases) == (outcome, (1,))


def test_a_case_slower_within_its_own_blur_does_not_spoil_a_gain() -> None:
    fresh = [scattered(-0.3, 0.001, 10), scattered(0.02, 0.001, 10)]
    assert confirm(rule(LONG, LONG), GAIN, fresh, fresh, seed=1).slower_cases == (1,)
    assert confirm(rule(LONG, SHORT), GAIN, fresh, fresh, seed=1).slower_cases == ()


def test_a_second_look_takes_ten_blocks_and_concludes_with_the_first() -> None:
    first, _ = looked(scattered(-0.05, 0.005))
    second = SecondLook(first)
    for value in scattered(-0.05, 0.005, 10):
        assert not second.complete
        second.add([value])
    assert second.complete
    found = second.conclude(seed=3)
    assert found == confirm(rule(), GAIN, first.blocks, second.blocks, seed=3)
    assert (found.outcome, found.measured.blocks) == (LookOutcome.FASTER, 10)


def test_a_second_look_needs_a_claim() -> None:
    first, _ = looked(scattered(0.0, 0.001))
    second = SecondLook(first)
    for value in scattered(0.0, 0.001, 10):
        second.add([value])
    with pytest.raises(ValueError, match="SAME needs no second one"):
        second.conclude(seed=3)


def test_a_second_look_ends_where_the_clock_never_keeps_still() -> None:
    second = SecondLook(FirstLook(rule()))
    for _ in range(policy.MOST_DISCARDED_BLOCKS):
        second.discard()
    with pytest.raises(TimeoutError, match="never kept still"):
        second.discard()


def test_settings_make_the_rule() -> None:
    settings = JudgeSettings(delta=0.03, alpha=0.01, budget_ms=50.0, allow_slower_cases=True)
    made = DecisionRule.of([LONG], settings, shared=False)
    assert (made.delta, made.alpha, made.budget_ms, made.allow_slower_cases) == (0.03, 0.01, 50.0, True)
    assert not DecisionRule.of([LONG], SETTINGS, shared=False).allow_slower_cases


# Where the host has a part in what is timed


def over(means: Sequence[float], claim: LookOutcome = LookOutcome.PROVISIONAL_SLOWER) -> Conclusion:
    """The conclusion from pairs of processes with these means, of which the first claimed something."""
    about = scattered(means[0], 0.01, policy.CONFIRMATION_BLOCKS)
    first = concluded(claim, about, about)
    assert first.claims
    return over_processes(rule(HOSTED), first, means)


def test_a_claim_about_the_host_needs_pairs_of_processes_that_agree() -> None:
    assert over([0.27, 0.30, 0.24, 0.29, 0.26]).outcome is LookOutcome.SLOWER
    one = over([0.27, 0.02, -0.10, 0.05, -0.03])
    assert one.outcome is LookOutcome.AMBIGUOUS, "one pair was unlucky"
    assert one.interval.lower < 0 < one.interval.upper
    assert one.measured.mean == pytest.approx(0.042)
    assert one.measured.detectable is not None
    assert not one.claims


def test_a_gain_of_the_host_holds_where_all_pairs_show_it() -> None:
    faster = LookOutcome.PROVISIONAL_FASTER
    gain = over([-0.40, -0.35, -0.45, -0.38, -0.41], faster)
    assert gain.outcome is LookOutcome.FASTER
    assert gain.measured.interval == gain.interval
    assert over([-0.40, 0.10, 0.20, -0.05, 0.15], faster).outcome is LookOutcome.AMBIGUOUS


def test_pairs_that_show_the_opposite_claim_nothing() -> None:
    assert over([0.2, -5.0, -5.1, -5.2, -5.3]).outcome is LookOutcome.AMBIGUOUS
    assert over([-0.2, 0.31, 0.30, 0.29, 0.32], LookOutcome.PROVISIONAL_FASTER).outcome is LookOutcome.AMBIGUOUS
