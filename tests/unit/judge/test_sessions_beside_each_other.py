"""Two sessions on one GPU: one opens while the other judges, and what is timed has the GPU to itself."""

import asyncio
import random
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from simulated_gpu import Oracle, SimulatedGpu, Version, judged

from kernel_lsp.judge.measure.cost import TIMING
from kernel_lsp.judge.sanitizer_tools import SanitizerTools
from kernel_lsp.runner.messages.oracle import Compare, MeasureRates, Vary
from kernel_lsp.runner.messages.subject import Run

TIMED = (*TIMING, MeasureRates)
SESSION = ContextVar("SESSION", default="")


class Events(list[tuple[str, str, Any]]):
    """Begin (`+`) and end of each request of a session; each takes a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rng = random.Random(3)
        for kind in (Version, Oracle):
            monkeypatch.setattr(kind, "ask", self._noted(kind.ask))

    def _noted(self, ask: Any) -> Any:
        async def noted(worker: Any, request: Any, *, deadline: float) -> Any:
            event = SESSION.get(), request
            self.append(("+", *event))
            try:
                for _ in range(self._rng.randrange(4)):
                    await asyncio.sleep(0)
                return await ask(worker, request, deadline=deadline)
            finally:
                self.append(("-", *event))

        return noted

    def pairs(self) -> list[tuple[Any, Any]]:
        """Requests of different sessions that were under way at the same time."""
        found: list[tuple[Any, Any]] = []
        under_way: list[tuple[str, Any]] = []
        for sign, session, request in self:
            if sign == "-":
                under_way.remove((session, request))
                continue
            found += [(request, theirs) for other, theirs in under_way if other != session]
            under_way.append((session, request))
        return found


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    return Events(monkeypatch)


async def judge_and_open(gpu: SimulatedGpu, folder: Path, events: Events, seconds: float, **options: str) -> None:
    """Judge candidates of session a while session b opens on the same GPU, then candidates of b."""
    pool = gpu._pool(1, folder)  # pyright: ignore[reportPrivateUsage]
    gpu._pool = lambda *_: pool  # pyright: ignore
    a_is_open = asyncio.Event()

    async def judge(name: str) -> None:
        SESSION.set(name)
        (folder / name).mkdir()
        if name == "b":
            await a_is_open.wait()
        async with gpu.opened([seconds], folder / name, [], **options) as session:
            a_is_open.set()
            for number in range(4):
                async with pool.turns.measuring:
                    events.append(("+", name, f"judge {number}"))
                    await judged(session, [seconds])
                    events.append(("-", name, f"judge {number}"))

    async with asyncio.timeout(60):
        await asyncio.gather(judge("a"), judge("b"))


def test_a_session_opens_while_another_one_judges_and_what_is_timed_is_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: Events
) -> None:
    asyncio.run(judge_and_open(SimulatedGpu(monkeypatch), tmp_path, events, 1e-3))
    pairs = events.pairs()
    beside = [pair for pair in pairs if any(isinstance(one, TIMED) for one in pair)]
    requests = [(type(a).__name__, type(b).__name__) for a, b in beside if not {type(a), type(b)} & {str}]
    assert requests == [], "timed beside another session's work"
    opened_beside = [one for pair in pairs for one in pair if isinstance(one, (Run, Compare))]
    assert len(opened_beside) > 10, "it opened only when nothing was judged"


def test_what_a_clock_decides_waits_until_no_candidate_is_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: Events
) -> None:
    """Else a candidate that keeps the GPU busy could leave the next problem with fewer inputs."""
    asyncio.run(judge_and_open(SimulatedGpu(monkeypatch), tmp_path, events, 1e-3))
    assert ("b", Vary) in {(session, type(request)) for _, session, request in events}
    assert not [pair for pair in events.pairs() if set(map(type, pair)) == {Vary, str}]


def test_a_slow_baseline_is_run_again_in_quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: Events) -> None:
    """From then on time is short: the first run beside others counts for nothing."""
    asyncio.run(judge_and_open(SimulatedGpu(monkeypatch), tmp_path, events, 0.2))
    beside = [pair for pair in events.pairs() if {str, Run} == set(map(type, pair))]
    of_b = [event for event in events if event[1] == "b" and isinstance(event[2], Run)]
    assert len(of_b) > 2
    judged_in_a = sum(any(one == f"judge {n}" for one in pair) for pair in beside for n in range(4))
    assert judged_in_a <= 2, "one run found out that it is slow"


def test_tools_are_kept_ready_by_a_session_that_has_the_gpu_to_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: Events
) -> None:
    """Each waiting process makes the next context on the GPU take longer, for all sessions."""
    open_then: list[int] = []

    def refill(tools: SanitizerTools) -> None:
        turns = tools._turns._turns  # pyright: ignore[reportPrivateUsage]
        open_then.append(len(turns.reserved) if turns else 0)

    monkeypatch.setattr(SanitizerTools, "may_wait", lambda *_: True)
    monkeypatch.setattr(SanitizerTools, "refill", refill)
    asyncio.run(judge_and_open(SimulatedGpu(monkeypatch), tmp_path, events, 1e-3, sanitize="auto"))
    assert set(open_then) == {1}
