"""Bound the cost of a judgement where one launch of the baseline takes long.

A judgement repeats launches by the hundred, which nobody notices of kernels that take milliseconds. With a baseline of
seconds it would take minutes. So from `policy.SLOW_LAUNCH_SECONDS` on a launch has to be worth its time: inputs that
are tried and pairs that are timed are as many as fit into `judge.slow_budget_s`, and what was left out for that is
said. The bound covers what launches of all versions took by this process's clock: those of the baseline before any
candidate, and those of one judgement. It is looked at before each launch, and a launch that has begun may go on for
twice the baseline's own time.
"""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernel_lsp import policy
from kernel_lsp.runner.messages.subject import CallRepeatedly, Run, RunSegments, Sustain, TraceLaunch, TraceSegment

LAUNCHING = (CallRepeatedly, Run, RunSegments, Sustain, TraceLaunch, TraceSegment)
"""Requests that launch a version; `Rehearse` is for what compiles first, and has a deadline of its own."""
TIMING = (CallRepeatedly, RunSegments, Sustain, TraceLaunch, TraceSegment)
"""Requests whose answers hold times, for which the GPU is held alone."""


class OutOfTimeError(Exception):
    """There is no time for one more launch in the judgement of a slow baseline."""


@dataclass(slots=True)
class LaunchTime:
    """Counts the seconds of launches, and what is left of the budget once the baseline is known to be slow.

    Attributes:
        budget_s: bound on them, `judge.slow_budget_s`.
        launch_s: by number of the case, the shortest run of the baseline.
        spent_s: by launches of the judgement under way, the baseline's own measurement included.
        measured_s: what the baseline's own measurement took, once it is over.
        bounded: True within that measurement and within judgements; searches have a budget of their own.
        announced: True once the user was told that judging is slow.
        planned_pairs: of launches that each of two looks at a candidate will have; the least, until they are known.
    """

    budget_s: float = policy.SLOW_BUDGET_SECONDS
    launch_s: dict[int, float] = field(default_factory=dict[int, float])
    spent_s: float = 0.0
    measured_s: float = 0.0
    bounded: bool = False
    announced: bool = False
    planned_pairs: int = policy.SLOW_LEAST_PAIRS

    def baseline_ran(self, case: int, seconds: float) -> None:
        """Record a run of the baseline; the shortest counts, because a first run may load libraries."""
        self.launch_s[case] = min(seconds, self.launch_s.get(case, math.inf))

    @contextmanager
    def measuring(self) -> Generator[None]:
        """Count launches in this block as part of measuring the baseline."""
        self.bounded = True
        try:
            yield
        finally:
            self.measured_s, self.bounded = self.spent_s, False

    @contextmanager
    def judgement(self) -> Generator[None]:
        """Count launches in this block as part of a judgement, with the time that measuring the baseline has left."""
        self.spent_s, self.bounded, self.planned_pairs = self.measured_s, True, policy.SLOW_LEAST_PAIRS
        try:
            yield
        finally:
            self.bounded = False

    def is_slow(self, case: int) -> bool:
        """Return True if the baseline takes long on a case."""
        return self.launch_s.get(case, 0.0) >= policy.SLOW_LAUNCH_SECONDS

    @property
    def slow(self) -> bool:
        """True if the baseline takes long on any case."""
        return any(map(self.is_slow, self.launch_s))

    @property
    def each_s(self) -> float:
        """Return the seconds of one baseline launch on every case together."""
        return math.fsum(self.launch_s.values())

    @property
    def left_s(self) -> float:
        """Return the seconds left; infinite for a quick baseline, and between judgements."""
        return self.budget_s - self.spent_s if self.slow and self.bounded else math.inf

    def deadline(self, asked_s: float) -> float:
        """Return the deadline of a launch, at most `asked_s` seconds.

        Raises:
            OutOfTimeError: there is no time left.
        """
        if self.left_s <= 0:
            raise OutOfTimeError(f"the {self.budget_s:.0f} s for launches were used up")
        return min(asked_s, max(self.left_s, 2 * self.each_s))

    def affords_inputs(self, seconds: float) -> bool:
        """Return True if there is time to run the baseline for so many seconds on optional inputs."""
        spare_s = (1 - policy.SLOW_INPUTS_SHARE) * self.budget_s
        return not self.slow or self.left_s - seconds >= spare_s

    def affords_case(self, expected_s: float = 0.0) -> bool:
        """Return True if all cases run so far can be timed, and one more with launches of `expected_s` seconds."""
        launches = 2 * policy.SLOW_LEAST_PAIRS + policy.SLOW_DOUBT_LAUNCHES
        return launches * (self.each_s + expected_s) + 2 * self.each_s + 4 * expected_s <= self.left_s

    def spare_launches(self, candidate_s: float) -> float:
        """Return how many launches of a candidate fit besides timing it; infinite for a quick baseline.

        Args:
            candidate_s: seconds of the longest of them.
        """
        if self.left_s == math.inf:
            return math.inf
        timed_s = self._timing_s(self.planned_pairs, candidate_s * len(self.launch_s))
        return max(0.0, math.floor((self.left_s - timed_s) / max(candidate_s, 1e-6)))

    def plan_pairs(self, candidate_s: float) -> int:
        """Plan and return the number of launch pairs in each of the two looks; 0 if time does not allow enough.

        Args:
            candidate_s: seconds of one launch of the candidate on every case.
        """
        fit = [n for n in _PAIRS if self._timing_s(n, candidate_s) <= self.left_s]
        if fit:
            self.planned_pairs = max(fit)
        return max(fit, default=0)

    def _timing_s(self, pairs: int, candidate_s: float) -> float:
        """Return the seconds of both looks and the checks of a gain."""
        launches = 2 * pairs + policy.SLOW_DOUBT_LAUNCHES
        return launches * self.each_s + (launches + pairs + policy.SLOW_CHECK_LAUNCHES) * candidate_s

    def slowest(self, cases: Sequence[str]) -> str:
        """Return a clause that names the case on which the baseline is slowest, and its seconds."""
        case = max(self.launch_s, key=self.launch_s.__getitem__)
        return f"a launch of the kernel as it stands takes {self.launch_s[case]:.1f} s on case {cases[case]}"

    def announcement(self, cases: Sequence[str]) -> str:
        """Return a sentence that tells the waiting user what judging will cost."""
        return (
            f"{self.slowest(cases)}: judging takes up to {self.budget_s:.0f} s of launches, on fewer inputs and with "
            f"fewer repeats than usual. {FIX}"
        )

    def refusal(self, cases: Sequence[str]) -> str:
        """Return a sentence on why nothing can be timed and what to do."""
        launches = 2 * policy.SLOW_LEAST_PAIRS + policy.SLOW_DOUBT_LAUNCHES
        return (
            f"{self.slowest(cases)}, and timing takes {launches} of them at least, which does not fit into "
            f"{self.budget_s:.0f} s. {FIX}"
        )


FIX = "A smaller case takes less; `judge.slow_budget_s` gives more time."
"""What to do where the baseline is slow."""
_PAIRS = range(policy.SLOW_LEAST_PAIRS, policy.SLOW_MOST_PAIRS + 1)
