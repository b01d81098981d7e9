"""Others slow single launches and put this process off: a candidate's times are doubted only if that is no reason."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from judge_support import Clock, fake_harness, fake_subject, timed

from kernel_lsp import policy
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.integrity import fresh_inputs, launches, outside_clock
from kernel_lsp.judge.integrity.fresh_inputs import FreshInputs, remembers
from kernel_lsp.judge.integrity.launches import ObservedLaunches, check_launches, check_surroundings, check_timed
from kernel_lsp.judge.integrity.outside_clock import Look, missing_share, seen_from_outside
from kernel_lsp.judge.integrity.trace import GpuOperation, Launched, OperationGroup
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.runner.messages.oracle import Renew
from kernel_lsp.runner.messages.subject import LookForChanges, Refresh, RunSegments, TraceLaunch, TraceSegment
from kernel_lsp.runner.messages.subject_answers import ProcessChanges, Segment, Traced, TracedOperation

CASE = timed()


class Timed:
    """A version whose launches take 100 us, of which it claims a share; each call may be put off by milliseconds."""

    def __init__(self, clock: Clock, shares: list[float], delays_ms: list[float]) -> None:
        self._clock, self._shares, self._delays_ms, self.calls = clock, shares, delays_ms, 0

    async def ask(self, request: Any, *, deadline: float) -> Any:
        assert isinstance(request, RunSegments)
        us = 100.0 * self._shares[min(self.calls, len(self._shares) - 1)]
        self.calls += 1
        delay = self._delays_ms.pop(0) if self._delays_ms else 0.0
        flushes = policy.FLUSH_US * CASE.launches / 1000
        runs = request.count * request.repeats
        self._clock.s += (0.05 + runs * (CASE.launches * 0.1 + flushes) + delay) / 1000
        return tuple(Segment((us,) * CASE.launches, (), None) for _ in range(request.count))


class Uneven(Timed):
    """A version of whose four launches the first does a part of the others' work; together they take as long."""

    async def ask(self, request: Any, *, deadline: float) -> Any:
        segments = await super().ask(request, deadline=deadline)
        return tuple(replace(segment, times_us=(166.0, 78.0, 78.0, 78.0)) for segment in segments)


Looking = Callable[..., tuple[Ruling | None, int]]


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Looking:
    """What is seen from outside, and after how many looks."""
    clock = Clock()
    monkeypatch.setattr(outside_clock, "time", clock)
    monkeypatch.setattr(outside_clock, "ready", AsyncMock())

    def look(shares: list[float], *, put_off: tuple[list[float], list[float]] = ([], [])) -> tuple[Ruling | None, int]:
        baseline, candidate = Timed(clock, [1.0], put_off[0]), Timed(clock, shares, put_off[1])
        sides = (fake_subject(baseline), fake_subject(candidate))
        found = asyncio.run(seen_from_outside(fake_harness(), *sides, [CASE]))
        assert baseline.calls == candidate.calls
        return found, candidate.calls

    return look


class Enqueued(Timed):
    """A version whose launches take so long, and whose host enqueues a segment in some time, and reads one in 80 us."""

    def __init__(self, clock: Clock, case: TimedCase, us: float, *, share: float = 1.0, host_us: float = 40.0) -> None:
        super().__init__(clock, [], [])
        self._case, self._us, self._share, self._host_us = case, us, share, host_us

    async def ask(self, request: Any, *, deadline: float) -> Any:
        self.calls += 1
        short = self._case.mode == "short"
        gpu_us = self._case.launches * (self._us + (0.0 if short else policy.FLUSH_US))
        evicting_us = 90.0 if short else 0.0
        row_us = self._host_us + gpu_us + (request.repeats - 1) * max(self._host_us, gpu_us + evicting_us)
        self._clock.s += request.count * (80.0 + row_us) / 1e6
        times = (self._us * self._share,) * self._case.launches
        return tuple(Segment(times, (), None) for _ in range(request.count))


@pytest.mark.parametrize("case", [timed("cold", us=50.0), timed("short", us=5.0, launches=20)])
def test_a_faster_version_that_leaves_the_gpu_idle_is_not_accused(
    case: TimedCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(outside_clock, "time", clock)
    baseline, candidate = (Enqueued(clock, case, us) for us in (case.baseline_us, case.baseline_us / 4))
    assert (
        asyncio.run(seen_from_outside(fake_harness(), fake_subject(baseline), fake_subject(candidate), [case])) is None
    )
    assert candidate.calls == 1


@pytest.mark.parametrize(("share", "outcome"), [(1.0, None), (1 / 3, Outcome.ILLEGITIMATE)])
@pytest.mark.parametrize("hosts_us", [(30.0, 55.0), (55.0, 30.0)])
def test_how_quick_the_host_of_a_process_is_matters_not(
    hosts_us: tuple[float, float], share: float, outcome: Outcome | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, case = Clock(), timed("short", us=4.0, launches=20)
    monkeypatch.setattr(outside_clock, "time", clock)
    baseline = Enqueued(clock, case, 4.0, host_us=hosts_us[0])
    candidate = Enqueued(clock, case, 4.0, share=share, host_us=hosts_us[1])
    ruling = asyncio.run(seen_from_outside(fake_harness(), fake_subject(baseline), fake_subject(candidate), [case]))
    assert (ruling and ruling.outcome) == outcome
    assert candidate.calls == 1 or outcome is not None


def test_one_look_is_enough_where_clocks_agree(looking: Looking) -> None:
    assert looking([1.0]) == (None, 1)
    assert looking([0.95]) == (None, 1)


def test_who_is_put_off_at_some_looks_is_not_accused(looking: Looking) -> None:
    assert looking([1.0], put_off=([], [30.0, 30.0])) == (None, 3)
    assert looking([1.0], put_off=([], [30.0] * 6)) == (None, 7), "nor for a second on end"


def test_nor_is_who_is_as_quick_beside_a_baseline_that_is_put_off(looking: Looking) -> None:
    assert looking([1.0], put_off=([30.0], []))[0] is None


@pytest.mark.parametrize("shares", [[1 / 3], [0.8], [1 / 3, 1 / 3, 0.5, 1 / 3]])
def test_who_claims_too_little_is_found(shares: list[float], looking: Looking) -> None:
    found, looks = looking(shares)
    assert found is not None
    assert found.outcome is Outcome.ILLEGITIMATE
    assert found.reason.startswith("rejected: on case n=1 it says that its launches took ")
    assert looks >= policy.OUTSIDE_CLOCK_LOOKS


def test_looks_are_spread_over_seconds_before_anybody_is_accused(looking: Looking) -> None:
    _, quick = looking([1 / 3])
    _, slow = looking([1 / 3], put_off=([500.0] * 100, [500.0] * 100))
    assert slow == 2 * policy.OUTSIDE_CLOCK_LOOKS < quick, "half of them without flushes"


def test_nobody_is_accused_where_the_baseline_is_put_off_as_much(looking: Looking) -> None:
    busy = [0.0, 0.0, 60.0, 60.0, 60.0, 60.0] * 100, [50.0] * 600
    found, _ = looking([1.0], put_off=busy)
    assert found is not None
    assert found.outcome is Outcome.AMBIGUOUS
    assert found.reason.startswith("other work on this machine delays the baseline as much, typically by ")
    found, _ = looking([1 / 3], put_off=([0.0, 0.0, 0.0, 0.0, 60.0, 60.0] * 100, []))
    assert found is not None
    assert found.outcome is Outcome.ILLEGITIMATE, "most of the baseline's looks are as quick as the quickest"


def test_who_is_put_off_at_every_look_and_claims_no_gain_is_not_accused(looking: Looking) -> None:
    """A kernel beside itself, in a process that answers late for as long as it lives: nobody gains by such a claim."""
    found, _ = looking([1.0], put_off=([], [30.0] * 600))
    assert found is not None
    assert found.outcome is Outcome.AMBIGUOUS
    assert found.reason.startswith(
        "watched from outside it claims no gain, and is put off: on case n=1 it says that its"
    )
    found, _ = looking([0.9], put_off=([], [30.0] * 600))
    assert found is not None
    assert found.outcome is Outcome.ILLEGITIMATE


def test_launches_without_flushes_are_looked_at_as_often(looking: Looking) -> None:
    """Flushes last longer beside the candidate, and the first look without them is put off."""
    later = [30.0, 30.0] + [30.0, 0.0] * 100
    assert looking([1.0], put_off=([], later)) == (None, 4)


def test_who_lets_one_launch_do_the_work_of_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(outside_clock, "time", clock)
    monkeypatch.setattr(outside_clock, "ready", AsyncMock())
    sides = (fake_subject(Timed(clock, [1.0], [])), fake_subject(Uneven(clock, [1.0], [])))
    ruling = asyncio.run(seen_from_outside(fake_harness(), *sides, [CASE]))
    assert ruling is not None
    assert ruling.outcome is Outcome.ILLEGITIMATE


@pytest.mark.parametrize(("claimed", "refused"), [(0.98, False), (0.8, True)])
def test_who_is_honest_in_another_process_alone_is_found(
    claimed: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(outside_clock, "time", clock)
    sides = (fake_subject(Timed(clock, [1.0], [])), fake_subject(Timed(clock, [1.0], [])))
    ruling = asyncio.run(seen_from_outside(fake_harness(), *sides, [CASE], [claimed]))
    assert (ruling is not None) == refused
    assert ruling is None or "take 1.000 of the baseline's time in one process, and 0.800 in another" in ruling.reason


def test_who_is_made_longer_by_others_at_some_looks_is_not_called_inconstant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others lengthen the candidate's kernels at the first looks, which by both clocks took as long."""

    class Lengthened(Timed):
        async def ask(self, request: Any, *, deadline: float) -> Any:
            before = self._clock.s
            segments = await super().ask(request, deadline=deadline)
            if self.calls > 3:
                return segments
            self._clock.s += (self._clock.s - before) * 0.3
            return tuple(replace(one, times_us=tuple(1.3 * us for us in one.times_us)) for one in segments)

    clock = Clock()
    monkeypatch.setattr(outside_clock, "time", clock)
    monkeypatch.setattr(outside_clock, "ready", AsyncMock())
    sides = (fake_subject(Timed(clock, [1.0], [])), fake_subject(Lengthened(clock, [1.0], [])))
    assert asyncio.run(seen_from_outside(fake_harness(), *sides, [CASE], [1.0])) is None


def test_launches_that_were_not_captured_have_their_own_look(looking: Looking) -> None:
    sides = (fake_subject(None), fake_subject(None))
    assert asyncio.run(seen_from_outside(fake_harness(), *sides, [replace(CASE, captured=False)])) is None


@pytest.mark.parametrize(
    ("baseline", "candidate", "share"),
    [
        (Look(50.0, 50.0), Look(25.0, 25.0), 0.0),
        (Look(70.0, 50.0), Look(45.0, 25.0), 0.0),  # flushes and messages take both the same time
        (Look(70.0, 50.0), Look(45.0, 20.0), 0.25),
        (Look(70.0, 50.0), Look(70.0, 25.0), 1.0),
        (Look(90.0, 50.0), Look(45.0, 25.0), -0.8),
    ],
)
def test_time_that_a_candidate_does_not_tell_of_is_a_share_of_what_it_claims(
    baseline: Look, candidate: Look, share: float
) -> None:
    assert missing_share(baseline, candidate) == pytest.approx(share)


@pytest.mark.parametrize("claimed_ms", [0.0, -50.0])
def test_who_claims_no_time_at_all_tells_of_none(claimed_ms: float) -> None:
    assert missing_share(Look(70.0, 50.0), Look(70.0, claimed_ms)) == float("inf")


class TracedVersion:
    """A version whose kernel takes so many microseconds in each trace, the last number in all further ones."""

    def __init__(self, us: list[float]) -> None:
        self._us, self.looks = us, 0

    async def ask(self, request: Any, *, deadline: float) -> Traced:
        assert isinstance(request, TraceSegment)
        us = self._us[min(self.looks, len(self._us) - 1)]
        self.looks += 1
        return Traced(tuple(TracedOperation("kernel", "softmax", 7, 1000.0 * i, us) for i in range(CASE.launches)))


def traced(us: list[float], *, shared: bool) -> tuple[Ruling | None, int]:
    """The ruling on a candidate that claims 100 us a launch, and how often it was traced."""
    group = OperationGroup("kernel", "softmax", own=True, calls=1, us=100.0, streams=(7,))
    alone = Launched((group,), 100.0)
    seen = ObservedLaunches({0: alone}, {0: (GpuOperation("kernel", "softmax", 7, 0.0, 100.0),)})
    baseline, candidate, findings = TracedVersion([200.0]), TracedVersion(us), Findings()
    sides = fake_subject(baseline), fake_subject(candidate)
    asyncio.run(check_timed(fake_harness(), *sides, [(CASE, 100.0)], (seen, seen), shared, findings))
    assert baseline.looks == candidate.looks
    return findings.ruling, candidate.looks


def test_kernels_that_others_make_longer_at_some_looks_accuse_nobody() -> None:
    assert traced([100.0], shared=False) == (None, 1)
    assert traced([300.0, 300.0, 110.0], shared=False) == (None, 3)


def test_kernels_that_are_longer_at_every_look_do_but_where_the_gpu_is_shared() -> None:
    ruling, looks = traced([300.0], shared=False)
    assert ruling is not None
    assert (ruling.outcome, looks) == (Outcome.ILLEGITIMATE, policy.TRACE_LOOKS)
    assert ruling.reason == (
        "rejected: on case n=1 its launches are said to take 100.0 us, but its kernels alone ran for 300.0 us in each"
    )
    ruling, _ = traced([300.0], shared=True)
    assert ruling is not None
    assert ruling.outcome is Outcome.AMBIGUOUS
    assert ruling.reason.startswith("others use this GPU, and clocks disagree: on case n=1 its launches are said to")


class EnqueuedVersion:
    """A version that is timed launch by launch, whose kernel starts so many microseconds after each flush began."""

    def __init__(self, start_us: float) -> None:
        self._start_us = start_us

    async def ask(self, request: Any, *, deadline: float) -> Traced:
        assert isinstance(request, TraceSegment)
        work = [
            TracedOperation(kind, name, 7, 1000.0 * number + start, us)
            for number in range(CASE.launches)
            for kind, name, start, us in (
                ("kernel", "demote", 0.0, 10.0),
                ("memset", "Memset (Device)", 10.0, 50.0),
                ("kernel", "softmax", self._start_us, 100.0),
                ("kernel", "kernel_lsp_checksum", 300.0, 5.0),
            )
        ]
        return Traced(tuple(work))


def enqueued(start_us: float, *, captured: bool) -> Ruling | None:
    """The ruling on a candidate whose kernel starts so many microseconds after the flush before it began."""
    group = OperationGroup("kernel", "softmax", own=True, calls=1, us=100.0, streams=(7,))
    seen = ObservedLaunches({0: Launched((group,), 100.0)}, {0: (GpuOperation("kernel", "softmax", 7, 0.0, 100.0),)})
    sides, findings = (fake_subject(EnqueuedVersion(61.0)), fake_subject(EnqueuedVersion(start_us))), Findings()
    timed = [(replace(CASE, captured=captured), 100.0)]
    asyncio.run(check_timed(fake_harness(), *sides, timed, (seen, seen), False, findings))
    return findings.ruling


def test_work_that_is_timed_launch_by_launch_runs_while_it_is_timed() -> None:
    assert enqueued(70.0, captured=False) is None
    ruling = enqueued(400.0, captured=False)
    assert ruling is not None
    assert ruling.outcome is Outcome.ILLEGITIMATE
    assert "runs `softmax` outside the time that is taken of a launch" in ruling.reason
    assert enqueued(400.0, captured=True) is None, "a graph shows by itself what runs when"


class Side:
    """A version whose launches take so long on inputs that it has not seen, and so long on others."""

    def __init__(self, fresh_us: list[float], again_us: float) -> None:
        self.fresh_us, self.again_us, self.fresh, self.refreshed = list(fresh_us), again_us, False, 0

    async def ask(self, request: Any, *, deadline: float) -> Any:
        if isinstance(request, Refresh):
            self.refreshed += 1
            return None
        us = self.fresh_us.pop(0) if self.fresh else self.again_us
        self.fresh = False
        return (Segment((us,) * CASE.launches, ((1,),) * CASE.launches, None),)


class Fresh:
    """Both sides of a confirmation, and the oracle that draws inputs for them."""

    def __init__(self, baseline: Side, candidate: Side, other: Side | None = None, seconds: float = 0.0) -> None:
        self.sides, self.drawn = [side for side in (baseline, candidate, other) if side], list[Renew]()
        self.clock, self._seconds = Clock(), seconds
        subjects = [fake_subject(side, name) for name, side in zip("abc", self.sides, strict=False)]
        harness = fake_harness(oracle=self._oracle, draws={})
        third = subjects[2] if other else None
        self.inputs = FreshInputs(harness, subjects[0], subjects[1], third, True, random.Random(1))

    async def _oracle(self, request: Any, **_: object) -> None:
        assert isinstance(request, Renew)
        self.drawn.append(request)
        self.clock.s += self._seconds
        for side in self.sides:
            side.fresh = True

    def remembers(self, monkeypatch: pytest.MonkeyPatch) -> Ruling | None:
        monkeypatch.setattr(fresh_inputs, "time", self.clock)
        return asyncio.run(remembers(self.inputs, [CASE]))


LOOKS = policy.FRESH_INPUTS_LAUNCHES


TWICE = 2 * LOOKS


def test_what_is_slow_at_first_every_time_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    ruling = Fresh(Side([100.0] * TWICE, 100.0), Side([85.0] * TWICE, 50.0)).remembers(monkeypatch)
    assert ruling is not None
    assert ruling.outcome is Outcome.ILLEGITIMATE
    assert "on case n=1 it takes 1.70 times as long on inputs that it has not seen as on the same" in ruling.reason


def test_so_does_it_where_drawing_inputs_takes_all_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Fresh(Side([100.0] * TWICE, 100.0), Side([85.0] * TWICE, 50.0), seconds=2 * policy.RENEWAL_SECONDS)
    assert slow.remembers(monkeypatch) is not None
    assert len(slow.drawn) == TWICE


def test_what_was_slow_at_first_in_one_set_of_probes_alone_does_not_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    jitter = Side([58.0] * 3 + [50.0] * (TWICE - 3), 50.0)
    fresh = Fresh(Side([100.0] * TWICE, 100.0), jitter)
    assert fresh.remembers(monkeypatch) is None
    assert len(fresh.drawn) == TWICE


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (Side([100.0] * LOOKS, 100.0), Side([50.0] * LOOKS, 50.0)),
        (Side([170.0] * LOOKS, 100.0), Side([85.0] * LOOKS, 50.0)),  # data that must be fetched
        (Side([100.0] * LOOKS, 100.0), Side([500.0, 500.0, 50.0, 50.0, 50.0], 50.0)),  # others on the GPU
        (Side([6.0] * LOOKS, 6.0), Side([6.5] * LOOKS, 5.0)),  # less than two microseconds
    ],
)
def test_what_others_or_the_inputs_slow_down_does_not(
    baseline: Side, candidate: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Fresh(baseline, candidate).remembers(monkeypatch) is None


def test_each_buffer_on_every_side_gets_inputs_of_its_own() -> None:
    fresh = Fresh(*(Side([], 1.0) for _ in range(3)))
    case = replace(CASE, buffers=4, restores=True, place=2)
    asyncio.run(fresh.inputs.renew(case))
    (asked,) = fresh.drawn
    assert len(set(asked.seeds)) == 4
    placed = {place.subject: place.buffers for place in asked.places}
    assert placed == {"a": case.names, "b": case.names, "c": case.at(0).names}
    assert [side.refreshed for side in fresh.sides] == [1, 1, 1]


def test_no_inputs_are_drawn_once_their_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Fresh(Side([], 1.0), Side([], 1.0), seconds=policy.RENEWAL_SECONDS + 0.1)
    monkeypatch.setattr(fresh_inputs, "time", fresh.clock)
    for _ in range(3):
        asyncio.run(fresh.inputs.renew(CASE))
    assert len(fresh.drawn) == 1
    assert not fresh.inputs.renewed, "not all of them were new"


class Truth:
    """Notes what outputs are held against, and finds nothing wrong; a drawn input is one of its seed's name."""

    def __init__(self, fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
        self.against: list[Draw] = []
        self._fresh = fresh
        monkeypatch.setattr(drawing, "fresh", self._draw)
        fresh.inputs.harness.unbind = AsyncMock()  # type: ignore[method-assign]
        monkeypatch.setattr(fresh_inputs, "time", fresh.clock)
        monkeypatch.setattr(fresh_inputs, "prepare", AsyncMock())
        monkeypatch.setattr(fresh_inputs, "fill", self._fill)
        monkeypatch.setattr(fresh_inputs, "compare_launch", self._compare)

    async def _draw(self, _harness: object, like: Draw, seed: int, family: str = "") -> Draw:
        return replace(like, key=f"seed {seed}", family=family or like.family)

    async def _fill(self, _harness: object, _subject: object, _case: object, draw: Draw) -> None:
        for side in self._fresh.sides:
            side.fresh = draw.family != CASE.draw.family

    async def _compare(self, _harness: object, _subject: object, _case: object, against: Draw, _launch: int) -> None:
        self.against.append(against)


def test_outputs_for_inputs_that_were_there_before_are_held_against_the_truth_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A version may leave out what it has done before: then nobody would see what became of it."""
    fresh = Fresh(Side([], 1.0), Side([], 1.0), seconds=policy.RENEWAL_SECONDS + 0.1)
    truth = Truth(fresh, monkeypatch)
    segment = Segment((1.0,) * CASE.launches, ((1,),) * CASE.launches, None)

    async def blocks(case: TimedCase) -> None:
        for _ in range(40):
            await fresh.inputs.renew(case)
            await fresh.inputs.look(case, segment)

    asyncio.run(blocks(CASE))
    assert len(fresh.drawn) == 1
    assert {draw.key for draw in truth.against} == {f"seed {seed}" for seed in fresh.drawn[0].seeds}
    truth.against.clear()
    fresh.inputs._seen.clear()
    asyncio.run(blocks(CASE.at(1)))
    assert {draw.key for draw in truth.against} == {CASE.draw.key}, "nothing was drawn in the other place"


def test_some_are_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Fresh(Side([1.0], 1.0), Side([1.0], 1.0), seconds=policy.RENEWAL_SECONDS + 0.1)
    truth = Truth(fresh, monkeypatch)

    async def twice() -> Ruling | None:
        for _ in range(2):
            await fresh.inputs.renew(CASE)
        for side in fresh.sides:
            side.fresh = False
        return await fresh.inputs.finish([CASE])

    assert asyncio.run(twice()) is None
    assert len(truth.against) == 2, "of new ones and of those that were there"


@pytest.mark.parametrize(("again_us", "rejected"), [(50.0, True), (85.0, False)])
def test_inputs_that_do_not_fit_what_was_recorded_are_recorded_by_themselves(
    again_us: float, rejected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Fresh(Side([100.0] * TWICE, 100.0), Side([85.0] * TWICE, again_us))
    other = replace(CASE.draw, arguments=(2.0,))
    fresh.inputs.harness.draws[f"{CASE.draw.case}/{CASE.draw.family}/1"] = other
    truth = Truth(fresh, monkeypatch)
    assert not fresh.inputs.applies(CASE)
    ruling = fresh.remembers(monkeypatch)
    assert (ruling is not None) is rejected
    assert (len(fresh.drawn), truth.against) == (0, [])
    assert fresh.inputs.drawn
    assert not fresh.inputs.renewed
    probes = TWICE if rejected else LOOKS
    assert fresh.inputs.summary() == f"recorded anew on {probes} others, 0 launches held against the truth"


def test_a_launch_that_answers_otherwise_in_another_process_is_held_against_the_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fake is wrong. What tunes itself anew in each process may sum in another order, and be right."""
    fresh = Fresh(Side([], 1.0), Side([], 1.0), Side([], 1.0))
    compared: list[int] = []

    async def compare(_harness: object, _subject: object, _case: object, _draw: Draw, launch: int) -> Ruling | None:
        compared.append(launch)
        return rejected("an output is wrong") if launch == 1 else None

    Truth(fresh, monkeypatch)
    monkeypatch.setattr(fresh_inputs, "compare_launch", compare)

    async def look(*checksums: int) -> Ruling | None:
        compared.clear()
        fresh.inputs.ruling = None
        segment = Segment((1.0,) * 4, tuple((each,) for each in checksums), None)
        for _ in range(50):
            await fresh.inputs.renew(CASE)
            for side in fresh.sides:
                side.fresh = False
            fresh.inputs._seen[0].compared = policy.FRESH_LAUNCHES_COMPARED
            await fresh.inputs.look(CASE, segment)
        return fresh.inputs.ruling

    assert asyncio.run(look(1, 1, 1, 1)) is None
    assert compared == []
    assert asyncio.run(look(1, 1, 2, 1)) is None
    assert set(compared) == {2}
    assert asyncio.run(look(1, 2, 1, 1)) == rejected("an output is wrong")


class Changing:
    """A version in whose process functions and settings have changed by now, and threads run."""

    def __init__(self, changed: tuple[str, ...], threads: tuple[str, ...] = ()) -> None:
        self._changes = ProcessChanges(changed, threads)

    async def ask(self, request: Any, *, deadline: float) -> ProcessChanges:
        assert isinstance(request, LookForChanges)
        return self._changes


EVENT, GRADIENTS = "torch.cuda.Event.elapsed_time", "torch's gradient mode"


@pytest.mark.parametrize(
    ("baseline", "candidate", "said"),
    [
        (Changing(()), Changing(()), ""),
        (Changing((GRADIENTS,)), Changing((GRADIENTS,)), ""),
        (Changing(()), Changing(("seen before",)), ""),
        (Changing((), ("own",)), Changing((), ("own",)), ""),
        (Changing((GRADIENTS,)), Changing((GRADIENTS, EVENT)), EVENT),
        (Changing(()), Changing((), ("own",)), "leaves a thread running"),
    ],
)
def test_what_a_version_changes_only_once_it_is_timed_is_seen_too(
    baseline: Changing, candidate: Changing, said: str
) -> None:
    findings, seen = Findings(), ObservedLaunches(changes=frozenset({"seen before"}))
    ruling = asyncio.run(check_surroundings(fake_subject(baseline), fake_subject(candidate), seen, findings))
    assert (ruling is None) is (not said)
    assert ruling is None or (ruling.outcome is Outcome.ILLEGITIMATE and said in ruling.reason)
    assert findings.ruling == ruling


@pytest.mark.parametrize(("baseline", "outcome"), [("", Outcome.ILLEGITIMATE), ("no CUPTI", None)])
def test_who_cannot_be_traced_where_the_baseline_can_is_rejected(baseline: str, outcome: Outcome | None) -> None:
    """A process in which a profiler is on already shows nothing, and so no library that computes in its place."""

    async def ask(request: Any, *, deadline: float) -> Any:
        if isinstance(request, TraceLaunch):
            return Traced((), failed="Profiler is already enabled on this thread.")
        return ProcessChanges((), ())

    harness, findings = fake_harness(fill=AsyncMock()), Findings()
    version = fake_subject(SimpleNamespace(ask=ask))
    version.built = SimpleNamespace(images=(), extensions=())  # type: ignore[assignment]
    seen = ObservedLaunches(launches={0: Launched((), 0.0)}, untraced=baseline)
    asyncio.run(check_launches(harness, version, [CASE], seen, findings))
    ruling = findings.ruling
    assert (ruling and ruling.outcome) == outcome
    assert ruling is None or "already enabled" in ruling.reason


def test_a_trace_that_was_lost_is_taken_again_before_anybody_is_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [ObservedLaunches(untraced="the trace is empty"), ObservedLaunches()]
    monkeypatch.setattr(launches, "observe", AsyncMock(side_effect=traces))
    findings = Findings()
    seen, _ = asyncio.run(check_launches(fake_harness(), fake_subject(), [CASE], ObservedLaunches(), findings))
    assert seen is traces[1]
    assert findings.ruling is None
