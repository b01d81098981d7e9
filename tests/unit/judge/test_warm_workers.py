"""Workers that are set up before there is a version for them."""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from kernel_lsp.config.settings import JudgeSettings, Settings
from kernel_lsp.device.device import device_named
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge import harness as judge_harness
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.stages.load import enter
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.judge.warm_workers import WarmWorkers
from kernel_lsp.runner.turns import GpuTurns
from kernel_lsp.runner.worker import Worker, WorkerDied

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"


def harness_on(memory_bytes: int, worker: Any) -> Harness:
    """A harness on a GPU that is not there, whose pool makes workers by `worker`."""
    gpu = Gpu(0, "GPU", "GPU-0", "sm_90", "580", memory_bytes)
    pool, builders = SimpleNamespace(worker=worker, turns=GpuTurns()), SimpleNamespace(device=device_named("sm_90"))
    settings = Settings(judge=JudgeSettings(sanitize="off"))
    return Harness(cast(Any, pool), make_target(MIXER), settings, cast(Any, builders), gpu)


async def no_worker(*_: object, **__: object) -> None:
    raise WorkerDied("CUDA error: out of memory")


async def ready(*_: object, **__: object) -> Any:
    return SimpleNamespace(ask=AsyncMock(), kill=lambda: None, pid=1)


async def some_time() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.mark.parametrize("coming", [True, False])
def test_a_process_that_ends_while_it_is_set_up_is_replaced(coming: bool) -> None:
    started = itertools.count()

    async def worker(*_: object, **__: object) -> Any:
        if next(started) == 0:
            raise WorkerDied("the subject process ended during `Ready`")
        return await ready()

    async def taken() -> Any:
        stock = WarmWorkers(lambda: worker(), lambda: True)
        if coming:
            stock.refill(many=False)
            await asyncio.sleep(0)  # the first one is being set up
        return await stock.take()

    assert asyncio.run(taken()).pid == 1
    assert next(started) >= 2


def test_a_stock_that_is_stopped_gets_the_one_under_way_and_no_more():
    begun: list[asyncio.Future[None]] = []

    async def worker() -> Any:
        begun.append(asyncio.get_running_loop().create_future())
        await begun[-1]
        return await ready()

    async def kept() -> int:
        stock = WarmWorkers(lambda: worker(), lambda: True)
        stock.refill(many=False)
        await some_time()
        stock.stop()
        begun[0].set_result(None)
        await some_time()
        return len(stock)

    assert asyncio.run(kept()) == 1
    assert len(begun) == 1


def test_a_process_that_cannot_be_set_up_is_not_the_versions_failure():
    async def entered() -> Any:
        harness = harness_on(141 << 30, no_worker)
        harness.refill()
        return await enter(harness, harness.target.baseline, cast(Built, None))

    ruling = asyncio.run(entered())
    assert (ruling.outcome, ruling.stage) == (Outcome.UNTIMED, Stage.RUN)
    assert "CUDA error: out of memory" in ruling.reason


@pytest.mark.parametrize(
    ("free", "gib", "versions", "large", "count"),
    [
        ([140], 141, 0, False, 3),
        ([140], 141, 1, False, 8),
        ([72, 71, 70], 141, 1, False, 5),  # another session fills its stock meanwhile
        ([60], 141, 1, False, 3),  # others have more than half
        ([23], 24, 1, False, 3),
        ([39], 40, 1, True, 3),
    ],
)
def test_more_are_kept_where_much_memory_is_free(
    free: list[int], gib: int, versions: int, large: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = itertools.chain(free, itertools.repeat(free[-1]))
    monkeypatch.setattr(judge_harness, "free_bytes", lambda _gpu: next(readings) << 30)

    async def kept() -> int:
        harness = harness_on(gib << 30, ready)
        harness.workload = replace(harness.workload, large=large)
        harness._subjects.update({str(n): cast(Any, SimpleNamespace(kill=lambda: None)) for n in range(versions)})
        harness.refill()
        await some_time()
        kept = len(harness.warm_workers)
        await harness.close()
        return kept

    assert asyncio.run(kept()) == count


def test_whoever_enters_waits_for_those_that_are_left_behind(monkeypatch: pytest.MonkeyPatch):
    noted: list[str] = []

    async def leaving() -> None:
        await asyncio.sleep(0)
        noted.append("left")

    async def loaded(*_: object) -> None:
        noted.append("loaded")

    async def entered() -> None:
        harness = harness_on(24 << 30, ready)
        monkeypatch.setattr(harness, "_load", loaded)
        harness.leave_behind(leaving())
        noted.append("the verdict is given")
        await harness.enter(harness.target.baseline, cast(Built, None))
        harness.leave_behind(leaving())
        await harness.close()

    asyncio.run(entered())
    assert noted == ["the verdict is given", "left", "loaded", "left"]


class Started:
    """Workers that are set up when the test says so; how many were begun, and which were ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended: list[int] = []
        self.may_end = asyncio.Semaphore(0)
        self.stock = WarmWorkers(self._set_up, lambda: True)

    async def _set_up(self) -> Worker:
        self.begun += 1
        number = self.begun
        await self.may_end.acquire()
        return cast(Worker, SimpleNamespace(number=number, kill=lambda: self.ended.append(number)))

    async def finish(self, count: int = 1) -> None:
        for _ in range(count):
            self.may_end.release()
            await some_time()


@pytest.mark.asyncio
async def test_workers_are_set_up_one_after_another_until_something_is_timed():
    started = Started()
    started.stock.refill(many=True)
    await started.finish()
    assert (len(started.stock), started.begun) == (1, 2)
    settling = asyncio.create_task(started.stock.settle())
    await some_time()
    assert not settling.done(), "the second is on its way"
    await started.finish()
    assert settling.done()
    assert (len(started.stock), started.begun) == (2, 2), "and no third is begun"
    started.stock.refill(many=True)
    await started.finish(6)
    assert (len(started.stock), started.begun) == (8, 8)
    await started.stock.close()
    assert started.ended == list(range(1, 9))


@pytest.mark.asyncio
async def test_who_needs_one_takes_that_which_comes_next():
    started = Started()
    started.stock.refill(many=False)
    await some_time()
    first, second = asyncio.create_task(started.stock.take()), asyncio.create_task(started.stock.take())
    await some_time()
    assert started.begun == 2, "the second waits for nobody's"
    await started.finish(2)
    assert {cast(Any, await each).number for each in (first, second)} == {1, 2}
    await started.finish(3)
    assert len(started.stock) == 3
    await started.stock.close()


@pytest.mark.asyncio
async def test_a_stock_that_closes_ends_what_is_coming():
    started = Started()
    started.stock.refill(many=False)
    await started.finish()
    await started.stock.close()
    await some_time()
    assert (len(started.stock), started.begun, started.ended) == (0, 2, [1])
