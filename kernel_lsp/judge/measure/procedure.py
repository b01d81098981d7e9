"""The decision rule of a measurement: from each new block to the next step.

Pure: numbers in, records out, so that the GPU and `tests/bench/paired_verdict_simulation.py` run the same rule.

1. `DecisionRule.of` fixes margins and the placement blur for the timed cases.
2. A `FirstLook` takes block after block until its decision says `stop`.
3. Where that decision is `provisional`, both sides are loaded into fresh processes, and a `SecondLook` takes
   `policy.CONFIRMATION_BLOCKS` fresh blocks and concludes.
4. Where the host has a part in what is timed, `over_processes` decides by the means of several such pairs.

Both claims, of a gain and of a loss, need two looks in different processes: code and memory lie elsewhere in each, and
a kernel that tunes itself may choose otherwise, which no number of blocks in one process shows. Only a loss that is
larger than that (`policy.CLEAR_LOSS`) is believed at once, so that bad candidates stay cheap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Protocol

from kernel_lsp import policy
from kernel_lsp.config.settings import JudgeSettings
from kernel_lsp.judge.measure import intervals, statistics
from kernel_lsp.judge.measure.intervals import Interval
from kernel_lsp.judge.measure.statistics import Confirmation, Decision, LookOutcome

NEVER_STEADY = "the GPU's clock never kept still long enough to time anything"
"""Message of the `TimeoutError` that too many discarded blocks raise."""


class Timed(Protocol):
    """A timed case, as far as the rule needs it."""

    @property
    def mode(self) -> str:
        """How it is timed: `cold` or `short`."""
        ...

    @property
    def baseline_us(self) -> float:
        """The baseline's own time, in microseconds."""
        ...

    @property
    def captured(self) -> bool:
        """True if a CUDA graph repeats its launches, so that the host has no part in their time."""
        ...


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """Margins for one pair of baseline and candidate, all of ln(B/A) unless stated otherwise.

    Attributes:
        delta: smallest gain worth having.
        alpha: error probability of each look.
        budget_ms: GPU milliseconds for the blocks of the first look.
        blur: bound on the difference that processes make by themselves, for the mean over cases.
        scatter: standard deviation of that difference, beyond what its blocks tell.
        place_scatter: that of the difference between two places of memory, one for either side.
        clear: distance from 0 that the mean over cases must exceed to be a gain or a loss: the blur, and on a shared
            GPU `policy.SHARED_CLEARANCE_DELTAS` times delta at least.
        case_clear: the same for each case by itself.
        allow_slower_cases: a gain on the whole may come with a loss on single cases.
        pairs: blocks of each look where the baseline is slow, fixed beforehand; None where blocks decide how many.
        hosted: the host's jitter is a part of what is timed.
    """

    delta: float
    alpha: float
    budget_ms: float
    blur: float
    scatter: float
    place_scatter: float
    clear: float
    case_clear: tuple[float, ...]
    allow_slower_cases: bool = False
    pairs: int | None = None
    hosted: bool = False

    @classmethod
    def of(
        cls,
        cases: Sequence[Timed],
        settings: JudgeSettings,
        *,
        shared: bool,
        pairs: int | None = None,
        copying: Sequence[float] | None = None,
    ) -> "DecisionRule":
        """Return the rule for these cases.

        The placement blur of a case is a share of its time; over cases it averages as independent errors do. A fixed
        number of `pairs` is measured in one place of memory, which may differ from the next by more. Short launches
        find what they work on in the cache, wherever it lies in memory.

        Args:
            cases: that are timed.
            settings: of the judge.
            shared: others compute on the GPU too.
            pairs: see the attribute.
            copying: share of each case's time in which memory reads and writes at once; all of it where it is unknown.
        """
        place = 0.0 if pairs is None else policy.PLACE_SCATTER_SHARE
        blurs = [policy.PLACEMENT_BLUR_US[case.mode] / case.baseline_us + 2 * place for case in cases]
        shares = [
            1.0 if case.mode == "short" else share
            for case, share in zip(cases, copying or [1.0] * len(cases), strict=True)
        ]
        scatters = [
            math.hypot(
                policy.PROCESS_SCATTER_US[case.mode] / case.baseline_us, policy.PROCESS_SCATTER_SHARE[case.mode] * share
            )
            for case, share in zip(cases, shares, strict=True)
        ]
        placed = [
            math.sqrt(2) * policy.PLACE_SCATTER_SHARE * share
            for case, share in zip(cases, shares, strict=True)
            if case.mode == "cold"
        ]
        blur = math.hypot(*blurs) / len(blurs)
        least = policy.SHARED_CLEARANCE_DELTAS * settings.delta if shared else 0.0
        return cls(
            delta=settings.delta,
            alpha=settings.alpha,
            budget_ms=settings.budget_ms,
            blur=blur,
            scatter=math.hypot(*scatters) / len(cases),
            place_scatter=math.hypot(*placed) / len(cases),
            clear=max(blur, least),
            case_clear=tuple(max(blur, least) for blur in blurs),
            allow_slower_cases=settings.allow_slower_cases,
            pairs=pairs,
            hosted=any(not case.captured and case.baseline_us < policy.HOSTED_LAUNCH_US for case in cases),
        )

    def widened(self, interval: Interval, deviation: float, memories: int = policy.PLACES) -> Interval:
        """Return an interval of one pair of processes, widened by the scatter between processes, and between places.

        Blocks come back to the same places, so that what these differ by does not average away with the blocks.

        Args:
            interval: of ln(B/A).
            deviation: of one of its blocks.
            memories: launches that worked in memory of their own; one where pairs are fixed.
        """
        centre, half = (interval.lower + interval.upper) / 2, (interval.upper - interval.lower) / 2
        places = self.place_scatter / math.sqrt(memories if self.pairs is None else 1)
        scatter = math.hypot(self.scatter, places, policy.PROCESS_SCATTER_DEVIATIONS * deviation)
        half = math.hypot(half, NormalDist().inv_cdf(1 - self.alpha / 2) * scatter)
        return Interval(centre - half, centre + half)

    @property
    def clear_loss(self) -> float:
        """Return the loss, in ln(B/A), from which a single look is enough; none is where the host is timed, too."""
        return math.inf if self.hosted else self.clear + policy.CLEAR_LOSS


@dataclass(slots=True)
class FirstLook:
    """The blocks of a first measurement; ask after each one whether it is over.

    Attributes:
        rule: by which it is decided.
        blocks: for each case ln(B/A) of each block that counts.
        gpu_ms: GPU milliseconds spent, discarded blocks included.
        discarded: blocks that do not count.
    """

    rule: DecisionRule
    blocks: tuple[list[float], ...] = field(init=False)
    gpu_ms: float = 0.0
    discarded: int = 0

    def __post_init__(self) -> None:
        """Begin without blocks."""
        self.blocks = tuple([] for _ in self.rule.case_clear)

    def add(self, block: Sequence[float], gpu_ms: float) -> Decision:
        """Add one block, ln(B/A) of each case, and return the decision on all blocks so far.

        Raises:
            ValueError: the block has not one value for each case.
        """
        for case, value in zip(self.blocks, block, strict=True):
            case.append(value)
        self.gpu_ms += gpu_ms
        return self.decision

    def discard(self, gpu_ms: float) -> Decision:
        """Count a block that is invalid, and return the decision on the others.

        After too many invalid blocks it is decided as if the budget were spent.

        Raises:
            TimeoutError: too many were discarded, and too few count to decide anything.
        """
        self.discarded += 1
        self.gpu_ms += gpu_ms
        decision = self.decision
        if self.discarded > policy.MOST_DISCARDED_BLOCKS and not decision.stop:
            raise TimeoutError(NEVER_STEADY)
        return decision

    @property
    def decision(self) -> Decision:
        """Return the decision so far: CONTINUE, PROVISIONAL_FASTER, PROVISIONAL_SLOWER, or a final outcome.

        NOT_WORTH_IT is measured on for `policy.FOLLOWED_BLOCKS` and `policy.FOLLOWED_MS`, as it may turn into SAME or a
        loss. A loss whose estimate is clear is for as many blocks, as these cost less than a second look. A fixed
        number of pairs is decided once, at its end.
        """
        rule = self.rule
        if rule.pairs is not None:
            return self._at_once(rule.pairs)
        spent_ms = math.inf if self.discarded > policy.MOST_DISCARDED_BLOCKS else self.gpu_ms
        look = statistics.decide(
            statistics.combine(self.blocks),
            rule.delta,
            rule.alpha,
            spent_ms,
            rule.budget_ms,
            clear=rule.clear,
            blur=rule.blur,
        )
        spent, followed = spent_ms >= rule.budget_ms, look.blocks >= policy.FOLLOWED_BLOCKS
        if look.outcome is LookOutcome.NOT_WORTH_IT and not (spent or (followed and spent_ms >= policy.FOLLOWED_MS)):
            return replace(look, outcome=LookOutcome.CONTINUE)
        if look.outcome is not LookOutcome.SLOWER or look.interval.lower > rule.clear_loss:
            return look
        early = look.blocks < policy.PROVISIONAL_BLOCKS or look.mean > rule.clear_loss
        waits = early and not (spent or followed)
        return replace(look, outcome=LookOutcome.CONTINUE if waits else LookOutcome.PROVISIONAL_SLOWER)

    def _at_once(self, pairs: int) -> Decision:
        rule, blocks = self.rule, statistics.combine(self.blocks)
        if len(blocks) < pairs:
            mean = math.fsum(blocks) / max(len(blocks), 1)
            return Decision(LookOutcome.CONTINUE, mean, Interval(-math.inf, math.inf), len(blocks))
        look = statistics.decide_once(blocks, rule.delta, rule.alpha, clear=rule.clear, blur=rule.blur)
        if look.outcome is not LookOutcome.SLOWER or look.interval.lower > rule.clear_loss:
            return look
        return replace(look, outcome=LookOutcome.PROVISIONAL_SLOWER)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The result of a second look.

    Attributes:
        outcome: FASTER, SLOWER, SAME, NOT_WORTH_IT or AMBIGUOUS.
        measured: estimates from the fresh blocks, with the intervals that decided.
        interval: of ln(B/A), to be shown: the t interval of the fresh blocks, widened by the scatter of processes.
        slower_cases: indices of cases that got slower beyond doubt, where the whole got faster.
    """

    outcome: LookOutcome
    measured: Confirmation
    interval: Interval
    slower_cases: tuple[int, ...] = ()

    @property
    def claims(self) -> bool:
        """True if it says that the candidate is faster, or slower."""
        return self.outcome in (LookOutcome.FASTER, LookOutcome.SLOWER)


@dataclass(slots=True)
class SecondLook:
    """Blocks measured later and in fresh processes, to confirm a provisional decision.

    Attributes:
        first: what is to be confirmed.
        memories: launches of its blocks that work in memory of their own.
        blocks: for each case ln(B/A) of each block that counts.
        discarded: blocks that do not count.
    """

    first: FirstLook
    memories: int = policy.PLACES
    blocks: tuple[list[float], ...] = field(init=False)
    discarded: int = 0

    def __post_init__(self) -> None:
        """Begin without blocks."""
        self.blocks = tuple([] for _ in self.first.blocks)

    @property
    def complete(self) -> bool:
        """True once there are enough blocks for a conclusion."""
        return len(self.blocks[0]) >= (self.first.rule.pairs or policy.CONFIRMATION_BLOCKS)

    def add(self, block: Sequence[float]) -> None:
        """Add one block, ln(B/A) of each case.

        Raises:
            ValueError: the block has not one value for each case.
        """
        for case, value in zip(self.blocks, block, strict=True):
            case.append(value)

    def discard(self) -> None:
        """Count a block that is invalid.

        Raises:
            TimeoutError: too many were discarded.
        """
        self.discarded += 1
        if self.discarded > policy.MOST_DISCARDED_BLOCKS:
            raise TimeoutError(NEVER_STEADY)

    def conclude(self, seed: int) -> Conclusion:
        """Return the conclusion from both looks; `seed` makes the bootstrap, and so the verdict, repeatable.

        A claim holds if the fresh blocks repeat it. Looks that contradict each other claim neither a gain nor a loss:
        after a provisional gain a loss is NOT_WORTH_IT (AMBIGUOUS where it may be the host's), after a provisional loss
        a gain is AMBIGUOUS.
        """
        first = self.first
        return confirm(first.rule, first.decision.outcome, first.blocks, self.blocks, seed, memories=self.memories)


def confirm(
    rule: DecisionRule,
    claim: LookOutcome,
    earlier: Sequence[Sequence[float]],
    fresh: Sequence[Sequence[float]],
    seed: int,
    *,
    memories: int = policy.PLACES,
) -> Conclusion:
    """Return the outcome of a second look.

    Args:
        rule: by which both looks are decided.
        claim: PROVISIONAL_FASTER or PROVISIONAL_SLOWER.
        earlier: for each case the blocks of the first look.
        fresh: for each case the blocks of the second one, 4 at least, or as many as the rule fixes.
        seed: of the bootstrap.
        memories: launches of the fresh blocks that worked in memory of their own.

    Raises:
        ValueError: the claim is none, or there are too few fresh blocks.
    """
    if claim not in (LookOutcome.PROVISIONAL_FASTER, LookOutcome.PROVISIONAL_SLOWER):
        raise ValueError(f"a first look that ended in {claim.name} needs no second one")
    combined = statistics.combine(fresh)
    measured = statistics.confirm(
        combined,
        statistics.combine(earlier),
        rule.delta,
        seed,
        rule.alpha,
        clear=rule.clear,
        blur=rule.blur,
        least=rule.pairs or policy.MIN_BLOCKS,
    )
    outcome, slower = measured.outcome, tuple[int, ...]()
    if outcome is LookOutcome.SLOWER and claim is LookOutcome.PROVISIONAL_FASTER:
        outcome = LookOutcome.AMBIGUOUS if rule.hosted else LookOutcome.NOT_WORTH_IT
    elif outcome is LookOutcome.FASTER and claim is LookOutcome.PROVISIONAL_SLOWER:
        outcome = LookOutcome.AMBIGUOUS
    elif outcome is LookOutcome.FASTER:
        once = rule.pairs is not None
        slower = tuple(statistics.guard(fresh, rule.delta, rule.alpha, clear=rule.case_clear, once=once))
        if slower and not rule.allow_slower_cases:
            outcome = LookOutcome.NOT_WORTH_IT
    deviation = intervals.summarise(combined).deviation
    return Conclusion(outcome, measured, rule.widened(measured.interval, deviation, memories), slower)


def over_processes(rule: DecisionRule, concluded: Conclusion, means: Sequence[float]) -> Conclusion:
    """Return the conclusion where the host has a part in what is timed.

    That part differs from process to process for as long as a process lives, so that all blocks of one pair repeat its
    luck. Pairs are what is independent: the claim holds if the t interval of their means repeats it.

    Args:
        rule: by which the looks were decided.
        concluded: the claim of the second look.
        means: estimates of ln(B/A), that of the second look and those of further pairs of processes, 2 at least.
    """
    decision = statistics.decide_once(means, rule.delta, rule.alpha, clear=rule.clear, blur=rule.blur)
    gains = decision.outcome is LookOutcome.PROVISIONAL_FASTER
    outcome = LookOutcome.FASTER if gains else decision.outcome
    if outcome in (LookOutcome.FASTER, LookOutcome.SLOWER) and outcome is not concluded.outcome:
        outcome = LookOutcome.AMBIGUOUS
    measured, interval, detectable = concluded.measured, decision.interval, decision.detectable
    measured = replace(measured, outcome=outcome, mean=decision.mean, interval=interval, detectable=detectable)
    return replace(concluded, outcome=outcome, measured=measured, interval=interval)
