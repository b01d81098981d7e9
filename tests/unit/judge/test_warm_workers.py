"""Workers that are set up before there is a version for them."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from kernel_lsp.config.settings import JudgeSettings, Settings
from kernel_lsp.device.device import device_named
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.stages.load import enter
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.worker import WorkerDied

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"


def harness_on(memory_bytes: int, worker: Any) -> Harness:
    """A harness on a GPU that is not there, whose pool makes workers by `worker`."""
    gpu = Gpu(0, "GPU", "GPU-0", "sm_90", "580", memory_bytes)
    pool, builders = SimpleNamespace(worker=worker), SimpleNamespace(device=device_named("sm_90"))
    settings = Settings(judge=JudgeSettings(sanitize="off"))
    return Harness(cast(Any, pool), make_target(MIXER), settings, cast(Any, builders), gpu)


async def no_worker(*_: object, **__: object) -> None:
    raise WorkerDied("CUDA error: out of memory")


async def waiting(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


def test_a_process_that_cannot_be_set_up_is_not_the_versions_failure():
    async def entered() -> Any:
        harness = harness_on(141 << 30, no_worker)
        harness.refill()
        return await enter(harness, harness.target.baseline, cast(Built, None))

    ruling = asyncio.run(entered())
    assert (ruling.outcome, ruling.stage) == (Outcome.UNTIMED, Stage.RUN)
    assert "CUDA error: out of memory" in ruling.reason


@pytest.mark.parametrize(
    ("gib", "versions", "large", "count"),
    [(141, 0, False, 3), (141, 1, False, 8), (24, 1, False, 3), (40, 1, True, 3)],
)
def test_more_are_kept_where_memory_is_plenty(gib, versions, large, count):
    async def kept() -> int:
        harness = harness_on(gib << 30, waiting)
        harness.workload = replace(harness.workload, large=large)
        harness._subjects.update({str(n): cast(Any, SimpleNamespace(kill=lambda: None)) for n in range(versions)})
        harness.refill()
        kept = len(harness._warm_workers)
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

    async def worker(*_: object, **__: object) -> Any:
        return SimpleNamespace(ask=AsyncMock(), kill=lambda: None)

    async def entered() -> None:
        harness = harness_on(24 << 30, worker)
        monkeypatch.setattr(harness, "_load", loaded)
        harness.leave_behind(leaving())
        noted.append("the verdict is given")
        await harness.enter(harness.target.baseline, cast(Built, None))
        harness.leave_behind(leaving())
        await harness.close()

    asyncio.run(entered())
    assert noted == ["the verdict is given", "left", "loaded", "left"]
