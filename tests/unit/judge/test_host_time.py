"""A gain on the GPU that the host's time takes back is none: calls by the parent's own clock."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from judge_support import Clock, fake_harness, fake_subject, timed

from kernel_lsp import policy
from kernel_lsp.judge.integrity import host_time
from kernel_lsp.judge.integrity.host_time import CallTimes, describe, longer_calls, time_calls
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.messages.subject import CallRepeatedly

CASE = timed(us=50.0)
EAGER = replace(CASE, captured=False)


def said(case: Any, baseline_us: float, candidate_us: float, gain_us: float) -> str:
    ruling = longer_calls(fake_harness(), [CallTimes(case, baseline_us, candidate_us)], [gain_us])
    if ruling is None:
        return ""
    assert (ruling.outcome, ruling.stage) == (Outcome.NOT_WORTH_IT, Stage.TIMED)
    return ruling.reason


@pytest.mark.parametrize(
    ("baseline_us", "candidate_us", "longer"),
    [
        (100.0, 60.0, False),
        (100.0, 119.0, False),  # 20 microseconds are within what launchers scatter by
        (100.0, 121.0, True),
        (1000.0, 1099.0, False),  # and so is a tenth
        (1000.0, 1101.0, True),
    ],
)
def test_calls_may_take_longer_by_what_launchers_scatter(baseline_us: float, candidate_us: float, longer: bool) -> None:
    assert bool(said(CASE, baseline_us, candidate_us, 10.0)) is longer


def test_the_reason_names_case_times_and_gain() -> None:
    assert said(CASE, 100.0, 1500.0, 12.34) == (
        "on case n=1 a call takes 1,500 us until the GPU is done, where the baseline's takes 100 us: the host's time "
        "takes back the 12.3 us that a launch gains"
    )
    assert said(CASE, 100.0, 1500.0, -3.0).endswith("takes back the 0.0 us that a launch gains")


@pytest.mark.parametrize(
    ("case", "gain_us", "shown_us", "seen"),
    [
        (EAGER, 100.0, 100.0, True),
        (EAGER, 100.0, 51.0, True),
        (EAGER, 100.0, 49.0, False),  # less than half
        (EAGER, 100.0, -10.0, False),
        (EAGER, 19.0, 0.0, True),  # too small a gain to be seen
        (CASE, 100.0, 0.0, True),  # captured launches have another clock
    ],
)
def test_a_gain_of_launches_that_cannot_be_captured_shows_in_calls(
    case: Any, gain_us: float, shown_us: float, seen: bool
) -> None:
    reason = said(case, 150.0, 150.0 - shown_us, gain_us)
    assert (reason == "") is seen
    assert seen or f"launches are said to gain 100.0 us, of which calls by the parent's clock show {shown_us}" in reason


def test_each_case_is_held_against_its_own_gain() -> None:
    calls = [CallTimes(timed(case=0), 100.0, 90.0), CallTimes(timed(case=1), 100.0, 200.0)]
    ruling = longer_calls(fake_harness(), calls, [10.0, 7.0])
    assert ruling is not None
    assert "on case n=2" in ruling.reason
    assert "7.0 us" in ruling.reason
    assert describe(calls) == "100 us before, 90 us now; 100 us before, 200 us now"


@pytest.mark.parametrize(("launches", "accepted"), [(0, False), (1, False), (2, True), (-2, False)])
def test_launches_in_python_are_not_a_candidates_own_time(launches: float, accepted: bool) -> None:
    calls = [CallTimes(CASE, 100.0, 138.0, launches)]
    assert (longer_calls(fake_harness(), calls, [50.0]) is None) is accepted


class Worker:
    """A process whose calls take so long in each try, by the test's clock."""

    def __init__(self, clock: Clock, us: list[float], launches: int = 1) -> None:
        self._clock, self._us, self._launches, self.counts = clock, us, launches, list[int]()

    async def ask(self, request: Any, *, deadline: float) -> Any:
        assert isinstance(request, CallRepeatedly)
        assert request.buffer == CASE.names[0]
        self.counts.append(request.count)
        self._clock.s += self._us[len(self.counts) - 1] * request.count * 1e-6
        return self._launches * request.count


@pytest.mark.parametrize(("us", "count"), [(50.0, policy.HOST_TIME_CALLS), (1000.0, 5), (9e4, 1)])
def test_the_least_of_several_tries_counts(us: float, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(host_time, "time", clock)
    slow = [9000.0, 80.0, 500.0, 70.0, 90.0, 80.0]  # the first one compiles, and others use the machine
    a, b = Worker(clock, slow), Worker(clock, slow[::-1], launches=3)
    case = replace(CASE, baseline_us=us)
    (found,) = asyncio.run(time_calls(fake_harness(), fake_subject(a), fake_subject(b), [case]))
    assert (found.baseline_us, found.candidate_us) == (pytest.approx(70.0), pytest.approx(70.0))
    assert found.further_launches == 2
    assert a.counts == b.counts == [count] * (policy.HOST_TIME_TRIES + 1)
