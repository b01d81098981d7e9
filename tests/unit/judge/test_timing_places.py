"""Blocks take places of memory in turn: each is made ready once, on both sides, and there are as many as fit."""

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from judge_support import fake_harness, fake_subject, timed

from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.measure import blocks as measuring
from kernel_lsp.judge.measure.blocks import PairedMeasurement, Series, TimedOutputsDiffer, warm_up
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.subject import Subject
from kernel_lsp.runner.messages.subject import RecordSegment, Refresh, RunSegments
from kernel_lsp.runner.messages.subject_answers import Recorded, Segment
from kernel_lsp.runner.protocol import WorkerFailure

CASE = timed(us=20.0, nbytes=1 << 20)


@dataclass
class Worker:
    """Answers as a subject's process does; has room for so many recordings, and says what it was asked.

    `log` hears of recordings too, and can be that of both sides together.
    """

    room: int = 99
    kind: str = "OutOfMemoryError"
    odd: bool = False
    clocks: list[float] = field(default_factory=list[float])
    recorded: list[str] = field(default_factory=list[str])
    timed: list[str] = field(default_factory=list[str])
    freed: list[str] = field(default_factory=list[str])
    log: list[tuple["Worker", int]] = field(default_factory=list[tuple["Worker", int]])

    async def ask(self, request: Any, *, deadline: float) -> Any:
        if isinstance(request, RecordSegment):
            if len(self.recorded) == self.room:
                raise WorkerFailure(self.kind, "no more", "")
            self.recorded.append(request.recording)
            self.log.append((self, places([request.recording])[0]))
            return Recorded()
        if isinstance(request, Refresh):
            return None
        assert isinstance(request, RunSegments)
        self.timed.append(request.recording)
        sums = ((7,), (8,)) if self.odd else ((7,), (7,))
        return (Segment((20.0, 20.0), sums, self.clocks.pop(0) if self.clocks else 1500.0),)


@dataclass
class Renewal:
    """Notes what it is asked for."""

    noted: list[str] = field(default_factory=list[str])

    async def renew(self, case: TimedCase) -> None:
        self.noted.append(f"renew {case.place}")

    async def look(self, case: TimedCase, segment: Segment) -> None:
        self.noted.append(f"look {case.place}")


async def bind(subject: Subject, buffers: tuple[str, ...], _draw: Draw) -> None:
    subject.bound[buffers[0]] = buffers


async def unbind(subject: Subject, first: str) -> None:
    if subject.bound.pop(first, ()):
        subject.recorded.pop(first, None)
        worker: Any = subject.worker
        worker.freed.append(first)


async def oracle(_request: object) -> None:
    pass


def measured(
    blocks: int, a: Worker, b: Worker, case: TimedCase = CASE, memory: int = 80 << 30, **options: Any
) -> Series:
    """So many blocks on a GPU with so much memory free."""
    harness = fake_harness(gpu=memory, bind=bind, unbind=unbind, oracle=oracle, salt=1)
    series = Series.empty([case])

    async def measure() -> None:
        pair = PairedMeasurement(
            harness, fake_subject(a, "a"), fake_subject(b, "b"), [case], random.Random(0), **options
        )
        await pair.make_ready()
        for _ in range(blocks):
            await pair.block(series)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "free_bytes", lambda gpu: gpu)
        asyncio.run(measure())
    return series


def places(names: list[str]) -> list[int]:
    return [int(name.rpartition("@")[2].partition(".")[0]) for name in names]


@pytest.mark.parametrize(
    ("buffers", "spread", "expected"), [(1, 16, 16), (4, 16, 4), (5, 16, 4), (8, 8, 1), (32, 16, 1)]
)
def test_there_are_as_many_places_as_spread_launches(buffers: int, spread: int, expected: int) -> None:
    a, b = Worker(), Worker()
    measured(0, a, b, replace(CASE, buffers=buffers), spread=spread)
    assert places(a.recorded) == places(b.recorded) == list(range(expected))


def test_blocks_take_places_in_turn_and_use_them_again() -> None:
    a, b = Worker(), Worker()
    series = measured(40, a, b)
    assert len(series.combined) == 40
    assert places(a.recorded) == places(b.recorded) == list(range(16))
    assert places(a.timed) == places(b.timed) == [n % 16 for n in range(40) for _ in range(2)]


def test_all_places_of_one_side_are_made_ready_before_those_of_the_other() -> None:
    """What is allocated for both in turn would lie in a pattern."""
    log: list[tuple[Worker, int]] = []
    a, b = Worker(log=log), Worker(log=log)
    measured(10, a, b)
    expected = [(side, place) for side in (a, b) for place in range(16)]
    assert [(id(side), place) for side, place in log] == [(id(side), place) for side, place in expected]


@pytest.mark.parametrize(("restores", "expected"), [(False, 4), (True, 2)])
def test_places_share_an_eighth_of_the_memory(restores: bool, expected: int) -> None:
    """8 GiB of 1 GiB inputs, two outputs of half of that and, where they change, a copy of the inputs."""
    a, b = Worker(), Worker()
    large = replace(CASE, draw=replace(CASE.draw, nbytes=1 << 30), output_bytes=1 << 29)
    measured(20, a, b, replace(large, restores=restores), memory=64 << 30)
    assert len(a.recorded) == len(b.recorded) == expected


def test_where_memory_is_short_there_is_one_place_still() -> None:
    a = Worker()
    measured(3, a, Worker(), memory=1 << 20)
    assert len(a.recorded) == 1


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "CudaError"])
def test_a_launch_that_takes_more_memory_has_fewer_places(kind: str) -> None:
    """What the other side has beyond them is freed, and so is what the launch did not come to."""
    a, b = Worker(), Worker(room=3, kind=kind)
    series = measured(8, a, b)
    assert len(series.combined) == 8
    assert places(b.recorded) == [0, 1, 2]
    assert places(a.freed) == list(range(3, 16))
    assert places(b.freed) == [3]
    assert places(a.timed)[::2] == places(b.timed)[::2] == [0, 1, 2, 0, 1, 2, 0, 1]


@pytest.mark.parametrize(("room", "kind"), [(0, "OutOfMemoryError"), (3, "RuntimeError")])
def test_other_failures_are_the_candidates(room: int, kind: str) -> None:
    with pytest.raises(WorkerFailure):
        measured(8, Worker(), Worker(room=room, kind=kind))


def test_inputs_are_renewed_before_each_half_and_the_candidate_is_looked_at_once_in_each() -> None:
    renewal = Renewal()
    measured(2, Worker(), Worker(odd=True), renewal=renewal)
    assert renewal.noted == [f"{what} {place}" for place in (0, 1) for _ in range(2) for what in ("renew", "look")]


def test_launches_on_the_same_inputs_that_differ_end_it_unless_they_may() -> None:
    with pytest.raises(TimedOutputsDiffer):
        measured(1, Worker(), Worker(odd=True))
    assert len(measured(1, Worker(), Worker(odd=True), same_bits=False).combined) == 1
    assert len(measured(1, Worker(odd=True), Worker()).combined) == 1, "the baseline is not on trial"


def test_a_block_in_which_a_clock_jumped_does_not_count() -> None:
    series = measured(2, Worker(clocks=[1500.0, 1400.0]), Worker())
    assert (len(series.combined), series.discarded) == (1, 1)
    assert series.clocks == [1500.0] * 4, "what was read in it is no evidence"


def test_blocks_of_a_later_series_come_last() -> None:
    one, other = measured(2, Worker(), Worker()), measured(3, Worker(), Worker())
    other.blocks[0][:] = [0.5, 0.6, 0.7]
    joined = one.joined(other)
    assert joined.blocks == [[0.0, 0.0, 0.5, 0.6, 0.7]]
    assert joined.last == (0.7,)
    assert (len(one.combined), len(joined.candidate_us[0])) == (2, 5)
    assert joined.gpu_ms == pytest.approx(one.gpu_ms + other.gpu_ms)


def test_both_sides_run_until_the_clock_keeps_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_lsp.policy.WARM_UP_LEAST_SECONDS", 0.0)
    a, b = Worker(clocks=[1000.0, 1200.0, 1400.0]), Worker(clocks=[1100.0, 1300.0, 1500.0])
    asyncio.run(warm_up((fake_subject(a), fake_subject(b)), CASE))
    assert len(a.timed) == len(b.timed) == 4, "1500 three times"
