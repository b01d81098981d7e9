"""Blocks take places of memory in turn: each is made ready once, on both sides, and there are as many as fit."""

import asyncio
import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_lsp.judge.bench import Draw, Subject
from kernel_lsp.judge.timing import Pair, Series, TimedCase

from kernel_lsp.judge import timing
from kernel_lsp.runner.protocol import WorkerFailure

DRAW = Draw("0/normal/0", 0, "normal", [], nbytes=1 << 20, input_bytes=1 << 20)
CASE = TimedCase(DRAW, "cold", 4, 20.0, output_bytes=1 << 20)


@dataclass
class Worker:
    """Answers as a subject's process does; has room for so many recordings, and says what it was asked.

    `log` hears of recordings too, and can be that of both sides together.
    """

    room: int = 99
    kind: str = "OutOfMemoryError"
    recorded: list[str] = field(default_factory=list[str])
    timed: list[str] = field(default_factory=list[str])
    freed: list[str] = field(default_factory=list[str])
    log: list[tuple["Worker", int]] = field(default_factory=list[tuple["Worker", int]])

    async def call(self, method: str, /, *, deadline: float, name: str, **_: Any) -> Any:
        if method == "record":
            if len(self.recorded) == self.room:
                raise WorkerFailure(self.kind, "no more", "")
            self.recorded.append(name)
            self.log.append((self, places([name])[0]))
            return None
        assert method == "segment"
        self.timed.append(name)
        return [{"times_us": [20.0], "checksums": [[7]], "clock_mhz": 1500.0}]


def subject(name: str, worker: Worker) -> Subject:
    version: Any = SimpleNamespace(kernel=None, launch=None)
    nothing: Any = None
    process: Any = worker
    return Subject(name, version, nothing, process)


async def fill(subject: Subject, draw: Draw) -> None:
    subject.bound.add(draw.slab)


async def unbind(subject: Subject, slab: str) -> None:
    if slab in subject.bound:
        worker: Any = subject.worker
        worker.freed.append(slab)


def run(blocks: int, a: Worker, b: Worker, case: TimedCase = CASE, memory: int = 80 << 30, ahead: int = 1) -> Series:
    bench: Any = SimpleNamespace(gpu=memory, fill=fill, unbind=unbind)
    series = Series.empty([case])

    async def measure() -> None:
        pair = Pair(bench, subject("a", a), subject("b", b), [case], random.Random(0), ahead=ahead)
        for _ in range(blocks):
            await pair.block(series)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "free_bytes", lambda gpu: gpu)
        asyncio.run(measure())
    return series


def places(names: list[str]) -> list[int]:
    return [int(name.rpartition("@")[2]) for name in names]


def test_each_block_has_a_place_of_its_own_on_both_sides() -> None:
    a, b = Worker(), Worker()
    series = run(10, a, b)
    assert len(series.combined) == 10
    assert places(a.recorded) == places(b.recorded) == list(range(10))
    assert places(a.timed) == places(b.timed) == [place for place in range(10) for _ in range(2)]


def test_places_are_used_again_when_there_are_no_more() -> None:
    a, b = Worker(), Worker()
    run(40, a, b)
    assert places(a.recorded) == list(range(16))
    assert places(a.timed)[::2] == [n % 16 for n in range(40)]


@pytest.mark.parametrize("ahead", [4, 10, 99])
def test_places_of_one_side_are_made_ready_before_those_of_the_other(ahead: int) -> None:
    """What is allocated for both in turn would lie in a pattern."""
    log: list[tuple[Worker, int]] = []
    a, b = Worker(log=log), Worker(log=log)
    run(10, a, b, ahead=ahead)
    expected = {
        4: [(side, place) for first in (0, 4, 8) for side in (a, b) for place in range(first, first + 4)],
        10: [(side, place) for side in (a, b) for place in range(10)],
        99: [(side, place) for side in (a, b) for place in range(16)],
    }
    assert [(id(side), place) for side, place in log] == [(id(side), place) for side, place in expected[ahead]]
    assert places(a.timed) == places(b.timed) == [place for place in range(10) for _ in range(2)]


def test_places_share_an_eighth_of_the_memory() -> None:
    a, b = Worker(), Worker()
    large = replace(CASE, draw=replace(DRAW, nbytes=1 << 30), output_bytes=1 << 29)
    run(20, a, b, large, memory=64 << 30)
    assert len(a.recorded) == 4  # 8 GiB of 1 GiB inputs and two outputs of half of that
    a, b = Worker(), Worker()
    run(20, a, b, replace(large, restores=True), memory=64 << 30)
    assert len(a.recorded) == 2  # each with a copy of its inputs


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "CudaError"])
@pytest.mark.parametrize("ahead", [1, 3, 10])
def test_a_launch_that_takes_more_memory_has_fewer_places(kind: str, ahead: int) -> None:
    """What the other side has beyond them is freed, and so is what the launch did not come to."""
    a, b = Worker(), Worker(room=3, kind=kind)
    series = run(8, a, b, ahead=ahead)
    assert len(series.combined) == 8
    assert places(b.recorded) == [0, 1, 2]
    assert places(a.freed) == list(range(3, len(a.recorded)))
    assert places(b.freed) == [3]
    assert places(a.timed)[::2] == places(b.timed)[::2] == [0, 1, 2, 0, 1, 2, 0, 1]


@pytest.mark.parametrize(("room", "kind"), [(0, "OutOfMemoryError"), (3, "RuntimeError")])
def test_other_failures_are_the_candidates(room: int, kind: str) -> None:
    with pytest.raises(WorkerFailure):
        run(8, Worker(), Worker(room=room, kind=kind), ahead=4)
