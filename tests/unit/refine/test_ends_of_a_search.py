"""A search that ends leaves nothing running and keeps within the time that its user allowed."""

import asyncio
import gc
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.config.settings import RefineSettings, Settings
from kernel_lsp.device.choice import target_device
from kernel_lsp.errors import RunnerError
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.refine import run, search, workbench
from kernel_lsp.refine.progress import SearchProgress
from kernel_lsp.refine.strategies import Strategy
from kernel_lsp.runner.turns import GpuTurns
from kernel_lsp.source.candidate import SourceFile


@pytest.fixture
def strategy(monkeypatch):
    """A strategy that goes on until it is cancelled and then has something to tidy up; what it did, in order."""
    did: list[str] = []

    async def tidy(*_: object) -> None:
        did.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            did.append("tidied up")

    goes_on = {"settled": lambda: None, "out_of_time": lambda: None}
    bench = SimpleNamespace(**goes_on, finish=lambda _: None, result=SimpleNamespace(cancelled=False))
    monkeypatch.setattr(search, "Workbench", lambda *_, **__: bench)
    monkeypatch.setitem(search.STRATEGIES, "tuner-only", Strategy(tidy))
    return did


SESSION = cast(Any, SimpleNamespace(settings=SimpleNamespace(refine=SimpleNamespace(strategy="tuner-only"))))


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
def test_the_strategy_has_ended_when_the_search_has(strategy, how):
    async def main() -> None:
        stop = asyncio.Event()
        searching = asyncio.create_task(search.refine(SESSION, budget=60.0, stop=stop))
        while not strategy:
            await asyncio.sleep(0)
        if how == "stopped":
            stop.set()
            assert (await searching).cancelled
        else:
            searching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await searching
        assert strategy == ["begun", "tidied up"]

    asyncio.run(main())


def test_what_a_strategy_raises_is_raised(strategy, monkeypatch):
    async def fail(*_: object) -> None:
        raise LookupError("nothing to try")

    monkeypatch.setitem(search.STRATEGIES, "tuner-only", Strategy(fail))
    with pytest.raises(LookupError, match="nothing to try"):
        asyncio.run(search.refine(SESSION, budget=60.0))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A made-up clock: `now` in seconds."""
    made_up = SimpleNamespace(now=1000.0)
    for module in (run, workbench):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: made_up.now, strftime=time.strftime))
    return made_up


def idle_session(budget: float) -> Any:
    """What a search asks of a session in which nothing can be timed."""
    chosen = Settings(refine=RefineSettings(budget=budget, strategy="tuner-only", untimed=True))
    pool = SimpleNamespace(turns=GpuTurns())
    return SimpleNamespace(settings=chosen, device=target_device(None, ["sm_90"]), gpu=None, measured=None, pool=pool)


@pytest.mark.parametrize(
    ("opening", "left", "reason"),
    [
        (26.0, 60.0 - 26.0 - 4.0, "nothing can be timed here, as this machine has no GPU: of 0 candidates 0 build"),
        (
            57.4,
            None,
            "building and measuring the kernel took 57 s of the 60 s in `refine.budget`, so nothing was tried",
        ),
    ],
)
def test_the_budget_counts_from_when_the_user_asked(
    opening: float, left: float | None, reason: str, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    shown: list[SearchProgress] = []

    @asynccontextmanager
    async def open_slowly(*_: object) -> AsyncGenerator[Any]:
        clock.now += opening
        yield idle_session(60.0)

    async def look(bench: workbench.Workbench, _: Settings) -> None:
        seen.append(bench.left())
        clock.now += 2.0
        bench.show("looking")

    monkeypatch.setattr(run, "open_session", open_slowly)
    monkeypatch.setattr(run, "Journal", lambda *_: None)
    monkeypatch.setitem(search.STRATEGIES, "tuner-only", Strategy(look))
    target = cast(Any, SimpleNamespace(source=SourceFile(Path("k.cu"), "")))
    asked = run.refine_target(
        target, idle_session(60.0).settings, cast(Any, None), asyncio.Event(), on_progress=shown.append
    )
    found = asyncio.run(asked)
    assert seen == ([] if left is None else [pytest.approx(left)])
    assert [one.elapsed for one in shown] == ([] if left is None else [pytest.approx(opening + 2.0)])
    assert found.reason == reason


def test_a_build_that_fails_after_its_search_has_ended_is_nobodys_error(monkeypatch):
    """Ctrl-C ends the processes that still build; asyncio would print a traceback for each of them."""

    async def build(_workload: object, candidate: object) -> object:
        await asyncio.sleep(0.02 if candidate is late else 0.0)
        if candidate is late:
            raise RunnerError("no process is started any more")
        return Ruling(Outcome.BUILD_FAILED, Stage.BUILD, "no")

    quick, late = (SimpleNamespace(digest=name) for name in ("quick", "late"))
    session = SimpleNamespace(builders=SimpleNamespace(build=build), target=SimpleNamespace(workload=None))
    raced: list[object] = []

    class Bench(workbench.Workbench):
        def __init__(self) -> None:
            self.session, self._others, self._measuring = cast(Any, session), (), asyncio.Lock()

        def show(self, *_: object, **__: object) -> None: ...

        def left(self) -> float:
            return 0.0

        async def _race_built(self, session, candidates, *_):
            raced.extend(candidates)
            return []

    async def main() -> list[str]:
        heard: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: heard.append(told["message"]))
        monkeypatch.setattr(workbench.asyncio, "wait", waited)
        await Bench()._race(cast(Any, [quick, late]), [], 1.0)
        await asyncio.sleep(0.05)
        gc.collect()  # asyncio complains when it forgets a task whose error nobody has seen
        return heard

    wait = asyncio.wait

    async def waited(tasks: Any, timeout: float | None = None, **how: Any) -> object:
        return await wait(tasks, timeout=0.01 if timeout is not None else None, **how)

    assert asyncio.run(main()) == []
    assert raced == [quick]
