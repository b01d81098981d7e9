"""The statistics of the paired verdict: from block differences to a decision.

Everything here is pure: numbers in, frozen records out. A *block* measures the baseline A and the candidate B as ABBA
or BAAB and gives one d = ln(B/A), so negative means that the candidate is faster. The order of work is

1. `decide` on all blocks after every one,
2. for a provisional outcome, `confirm` on fresh blocks measured later,
3. for several cases, `combine` makes one series of blocks and `guard` names the cases that got slower.

`judge.measure.procedure` puts these together to the rule that runs; `judge.measure.rounds` has the blocks of a race.
`judge.measure.intervals` derives the intervals and names its sources.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernel_lsp.judge.measure.intervals import (
    Interval,
    bootstrap_interval,
    half_width,
    half_width_once,
    min_detectable,
    speedup_of,
    summarise,
)
from kernel_lsp.judge.measure.student_t import t_quantile
from kernel_lsp.policy import (
    ALPHA,
    BUDGET_MS,
    DELTA,
    DETECTION_POWER,
    LEAST_DEVIATION,
    MIN_BLOCKS,
    PROVISIONAL_BLOCKS,
)


class LookOutcome(StrEnum):
    """A conclusion from blocks; CONTINUE and the provisional ones ask for more of them, the others are final."""

    CONTINUE = "continue"
    PROVISIONAL_FASTER = "provisional_faster"
    PROVISIONAL_SLOWER = "provisional_slower"
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NOT_WORTH_IT = "not_worth_it"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Decision:
    """The next step after a block.

    Attributes:
        outcome: every `LookOutcome` but FASTER.
        mean: estimate of ln(B/A).
        interval: confidence sequence of ln(B/A) at this look, infinite while nothing can be said.
        blocks: how many blocks it rests on.
        detectable: with AMBIGUOUS, the smallest |ln(B/A)| that so many blocks would have found, see `min_detectable`.
    """

    outcome: LookOutcome
    mean: float
    interval: Interval
    blocks: int
    detectable: float | None = None

    @property
    def stop(self) -> bool:
        """True if this series of blocks is over: the outcome is final, or `confirm` decides next."""
        return self.outcome is not LookOutcome.CONTINUE

    @property
    def provisional(self) -> bool:
        """True if only fresh blocks can tell, see `confirm`."""
        return self.outcome in (LookOutcome.PROVISIONAL_FASTER, LookOutcome.PROVISIONAL_SLOWER)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The verdict on a provisionally faster or slower candidate, with the interval to report.

    Attributes:
        outcome: FASTER, SLOWER, SAME, NOT_WORTH_IT or AMBIGUOUS.
        mean: estimate of ln(B/A) from the fresh blocks alone, free of the luck that selected the candidate.
        interval: t interval of ln(B/A) from the fresh blocks; `interval.speedup` is what a report shows.
        bootstrap: percentile interval of the same mean over resampled fresh blocks.
        pooled: estimate of ln(B/A) from earlier and fresh blocks together.
        blocks: number of fresh blocks.
        detectable: with AMBIGUOUS, the smallest |ln(B/A)| that the fresh blocks would have found.
    """

    outcome: LookOutcome
    mean: float
    interval: Interval
    bootstrap: Interval
    pooled: float
    blocks: int
    detectable: float | None = None

    @property
    def speedup(self) -> float:
        """Return the best estimate of baseline time over candidate time, from the fresh blocks."""
        return speedup_of(self.mean)


def decide(
    d: Sequence[float],
    delta: float = DELTA,
    alpha: float = ALPHA,
    spent_ms: float = 0.0,
    budget_ms: float = BUDGET_MS,
    floor: float = LEAST_DEVIATION,
    clear: float = 0.0,
    blur: float = 0.0,
) -> Decision:
    """Return the decision on the blocks so far; it is valid at every look, so call it after each one.

    In this order: the interval lies above `clear`, SLOWER; it excludes a gain of `delta` or beyond `blur`, SAME when it
    excludes a loss of `delta` beyond `clear` too and NOT_WORTH_IT otherwise; it lies below -`clear` and the estimate is
    a gain of at least `delta`, PROVISIONAL_FASTER, from 8 blocks on or when the budget is spent; the budget is spent,
    AMBIGUOUS. A real gain under `delta` is never PROVISIONAL_FASTER for long: with more blocks its interval excludes
    `delta`.

    Args:
        d: ln(B/A) of each block, in order of time. Under 4 blocks the answer is CONTINUE, whatever was spent.
        delta: smallest gain worth having.
        alpha: error probability over all looks.
        spent_ms: GPU time spent on the blocks.
        budget_ms: GPU time allowed for them.
        floor: least deviation of a block to believe in.
        clear: distance from 0 that an interval must keep to be a gain or a loss.
        blur: difference that processes make by themselves; no number of blocks tells a gain of that size.
    """
    if len(d) < MIN_BLOCKS:
        mean = math.fsum(d) / len(d) if d else 0.0
        return Decision(LookOutcome.CONTINUE, mean, Interval(-math.inf, math.inf), len(d))
    s = summarise(d, floor)
    h = half_width(s.deviation, s.n, alpha)
    interval = Interval(s.mean - h, s.mean + h)
    spent = spent_ms >= budget_ms
    outcome = _no_gain(interval, delta, clear, blur)
    if outcome is None and _gain(interval, s.mean, delta, clear) and (spent or s.n >= PROVISIONAL_BLOCKS):
        outcome = LookOutcome.PROVISIONAL_FASTER
    if outcome is None and spent:
        return Decision(LookOutcome.AMBIGUOUS, s.mean, interval, s.n, min_detectable(s.deviation, s.n, alpha))
    return Decision(outcome or LookOutcome.CONTINUE, s.mean, interval, s.n)


def decide_once(
    d: Sequence[float], delta: float = DELTA, alpha: float = ALPHA, clear: float = 0.0, blur: float = 0.0
) -> Decision:
    """Return the decision on a number of blocks that was fixed before any was measured: by their t interval.

    Outcomes are those of `decide`, but never CONTINUE. An interval that is looked at once may be narrower than one
    that is looked at after every block; of two blocks it is 12.7 of their standard errors wide to either side.

    Args:
        d: ln(B/A) of 2 blocks at least, in order of time.
        delta: smallest gain worth having.
        alpha: error probability.
        clear: distance from 0 that an interval must keep to be a gain or a loss.
        blur: see `decide`.
    """
    s = summarise(d)
    h = half_width_once(s.deviation, s.n, alpha)
    interval = Interval(s.mean - h, s.mean + h)
    outcome = _no_gain(interval, delta, clear, blur)
    if outcome is None and _gain(interval, s.mean, delta, clear):
        outcome = LookOutcome.PROVISIONAL_FASTER
    if outcome is not None:
        return Decision(outcome, s.mean, interval, s.n)
    detectable = h + t_quantile(DETECTION_POWER, s.n - 1) * s.deviation / math.sqrt(s.n)
    return Decision(LookOutcome.AMBIGUOUS, s.mean, interval, s.n, detectable)


def confirm(
    fresh: Sequence[float],
    earlier: Sequence[float],
    delta: float = DELTA,
    seed: int = 0,
    alpha: float = ALPHA,
    floor: float = LEAST_DEVIATION,
    clear: float = 0.0,
    blur: float = 0.0,
    least: int = MIN_BLOCKS,
) -> Confirmation:
    """Return the verdict on a provisionally faster or slower candidate.

    FASTER needs the t interval and the bootstrap of the fresh blocks to lie below -`clear`, and both the fresh and the
    pooled estimate to be a gain of at least `delta`. A candidate no faster than the baseline passes the t
    interval alone with alpha / 2, after having passed `decide`. SLOWER needs both intervals to lie above `clear`. All
    else is SAME or NOT_WORTH_IT by the rules of `decide`, or AMBIGUOUS.

    Args:
        fresh: ln(B/A) of at least 4 blocks (10 by rule, or as many as were fixed beforehand) measured after a pause,
            none of them used in `decide`.
        earlier: the blocks that made the outcome provisional.
        delta: smallest gain worth having.
        seed: of the bootstrap, so that a verdict can be repeated.
        alpha: error probability of both intervals.
        floor: least deviation of a block to believe in.
        clear: distance from 0 that both intervals must keep to be a gain or a loss.
        blur: see `decide`.
        least: fewest fresh blocks that may confirm anything, 2 at least.

    Raises:
        ValueError: there are fewer fresh blocks.
    """
    if len(fresh) < least:
        raise ValueError(f"{len(fresh)} fresh blocks confirm nothing, at least {least} are needed")
    s = summarise(fresh, floor)
    scale = s.deviation / math.sqrt(s.n)
    t = t_quantile(1 - alpha / 2, s.n - 1)
    interval = Interval(s.mean - t * scale, s.mean + t * scale)
    bootstrap = bootstrap_interval(fresh, alpha, seed, floor)
    pooled = summarise([*earlier, *fresh], floor).mean
    gains = _gain(interval, s.mean, delta, clear) and _gain(bootstrap, pooled, delta, clear)
    doubtful = Interval(min(interval.lower, bootstrap.lower), interval.upper)
    outcome = LookOutcome.FASTER if gains else _no_gain(doubtful, delta, clear, blur) or LookOutcome.AMBIGUOUS
    detectable = (t + t_quantile(DETECTION_POWER, s.n - 1)) * scale if outcome is LookOutcome.AMBIGUOUS else None
    return Confirmation(outcome, s.mean, interval, bootstrap, pooled, s.n, detectable)


def combine(per_case: Sequence[Sequence[float]]) -> list[float]:
    """Return one series from the blocks of several cases: their mean ln(B/A), so a geometric mean of ratios.

    Args:
        per_case: for each case ln(B/A) of each block; all of the same length.
    """
    return [math.fsum(block) / len(block) for block in zip(*per_case, strict=True)]


def guard(
    per_case: Sequence[Sequence[float]],
    delta: float = DELTA,
    alpha: float = ALPHA,
    floor: float = LEAST_DEVIATION,
    clear: Sequence[float] | None = None,
    once: bool = False,
) -> list[int]:
    """Return the indices of the cases that got slower: the mean is above `delta`, and the whole interval above `clear`.

    Each case is tested at `alpha`: a correction for their number would hide real losses to spare a few false alarms.

    Args:
        per_case: for each case ln(B/A) of each block.
        delta: the least slowdown that counts, as ln(B/A).
        alpha: chance that a case which is not slower is named.
        floor: the least standard deviation that is assumed.
        clear: for each case a bound on the error of its measurement, as ln(B/A); 0 by default.
        once: True if the number of blocks was fixed beforehand.
    """
    width = half_width_once if once else half_width
    slower: list[int] = []
    for index, d in enumerate(per_case):
        s = summarise(d, floor)
        lower = s.mean - width(s.deviation, s.n, alpha)
        if s.mean > delta and lower > (clear[index] if clear is not None else 0.0):
            slower.append(index)
    return slower


def _no_gain(interval: Interval, delta: float, clear: float, blur: float) -> LookOutcome | None:
    """Return the outcome of an interval that rules out a gain worth having, else None."""
    if interval.lower > clear:
        return LookOutcome.SLOWER
    if interval.lower > -max(delta, blur):
        return LookOutcome.SAME if interval.upper < delta + clear else LookOutcome.NOT_WORTH_IT
    return None


def _gain(interval: Interval, mean: float, delta: float, clear: float) -> bool:
    """Return True if the interval lies below -`clear` with an estimate of at least `delta`."""
    return interval.upper < -clear and mean <= -delta
