"""Measure the host's time in a call, which captured launches hide, by the parent's clock on both sides."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.messages.subject import CallRepeatedly


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Microseconds of one eager call until the GPU is done, host and GPU together, on one case.

    Attributes:
        case: the case.
        baseline_us: of a call of the baseline.
        candidate_us: of a call of the candidate.
        further_launches: that the candidate makes in a call, beyond the baseline's, through our own launchers.
    """

    case: TimedCase
    baseline_us: float
    candidate_us: float
    further_launches: float = 0.0

    @property
    def launching_us(self) -> float:
        """Return the time of these launches that is not the candidate's: in Python, where a user's are in C++."""
        return policy.HOST_TIME_LAUNCH_US * max(self.further_launches, 0.0)


async def time_calls(
    harness: Harness, baseline: Subject, candidate: Subject, cases: Sequence[TimedCase]
) -> list[CallTimes]:
    """Time eager calls of both sides alternately; the least of several tries counts, as disturbances only add time."""
    found: list[CallTimes] = []
    for case in cases:
        count = max(1, min(policy.HOST_TIME_CALLS, int(policy.HOST_TIME_TRY_US / max(case.baseline_us, 1.0))))
        least, launches = [float("inf"), float("inf")], [0, 0]
        for _ in range(1 if case.slow else policy.HOST_TIME_TRIES + 1):  # the first one may compile
            for side, subject in enumerate((baseline, candidate)):
                request = CallRepeatedly(buffer=case.names[0], count=count)
                started = time.perf_counter()
                launches[side] = await subject.ask(request, deadline=policy.FIRST_RUN_SECONDS)
                least[side] = min(least[side], (time.perf_counter() - started) * 1e6 / count)
        found.append(CallTimes(case, least[0], least[1], (launches[1] - launches[0]) / count))
    return found


def least(one: Sequence[CallTimes], other: Sequence[CallTimes]) -> list[CallTimes]:
    """Return by case the lesser times of two series; the second where there is no first."""
    if not one:
        return list(other)
    return [
        replace(b, baseline_us=min(a.baseline_us, b.baseline_us), candidate_us=min(a.candidate_us, b.candidate_us))
        for a, b in zip(one, other, strict=True)
    ]


def longer_calls(harness: Harness, calls: Sequence[CallTimes], gains_us: Sequence[float]) -> Ruling | None:
    """Return the ruling on a candidate whose calls lose more host time than the GPU gains, or None.

    Args:
        harness: of the target.
        calls: by case.
        gains_us: by case, microseconds that a launch gains on the GPU.
    """
    for call, gain_us in zip(calls, gains_us, strict=True):
        slack = max(policy.HOST_TIME_SLACK_US, policy.HOST_TIME_SLACK_SHARE * call.baseline_us)
        if call.candidate_us - call.baseline_us > slack + call.launching_us:
            return Ruling(
                Outcome.NOT_WORTH_IT,
                Stage.TIMED,
                f"on case {harness.cases[call.case.draw.case]} a call takes {call.candidate_us:,.0f} us until the GPU "
                f"is done, where the baseline's takes {call.baseline_us:,.0f} us: the host's time takes back the "
                f"{max(gain_us, 0.0):,.1f} us that a launch gains",
            )
        unseen = not call.case.captured and gain_us > slack
        if unseen and call.baseline_us - call.candidate_us < policy.EAGER_GAIN_SEEN_SHARE * gain_us:
            return Ruling(
                Outcome.NOT_WORTH_IT,
                Stage.TIMED,
                f"on case {harness.cases[call.case.draw.case]} launches are said to gain {gain_us:,.1f} us, of which "
                f"calls by the parent's clock show {call.baseline_us - call.candidate_us:,.1f} us",
            )
    return None


def describe(calls: Sequence[CallTimes]) -> str:
    """Return the times of calls as text for the evidence."""
    return "; ".join(f"{c.baseline_us:,.0f} us before, {c.candidate_us:,.0f} us now" for c in calls)
