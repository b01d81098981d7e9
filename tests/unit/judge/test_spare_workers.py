"""Workers that are set up before there is a version for them."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kernel_lsp.judge.bench import Bench

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.session import enter
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.worker import WorkerDied

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"


def bench_on(memory_bytes: int, worker: Any) -> Bench:
    """A bench on a GPU that is not there, whose pool makes workers by `worker`."""
    gpu = Gpu(0, "GPU", "GPU-0", "sm_90", "580", memory_bytes)
    pool, builders = SimpleNamespace(worker=worker), SimpleNamespace(arch="sm_90")
    return Bench(cast(Any, pool), make_target(MIXER), Settings(), cast(Any, builders), gpu)


async def no_worker(*_: object, **__: object) -> None:
    raise WorkerDied("CUDA error: out of memory")


async def waiting(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


def test_a_process_that_cannot_be_set_up_is_not_the_versions_failure():
    async def entered() -> Any:
        bench = bench_on(141 << 30, no_worker)
        bench.refill()
        return await enter(bench, bench.target.baseline, cast(Built, None))

    failure = asyncio.run(entered())
    assert (failure.outcome, failure.stage) == (Outcome.UNTIMED, Stage.RUN)
    assert "CUDA error: out of memory" in failure.reason


@pytest.mark.parametrize(
    ("gib", "versions", "large", "spares"),
    [(141, 0, False, 3), (141, 1, False, 6), (24, 1, False, 3), (40, 1, True, 3)],
)
def test_more_are_kept_where_memory_is_plenty(gib, versions, large, spares):
    async def kept() -> int:
        bench = bench_on(gib << 30, waiting)
        bench.large = large
        bench._subjects.update({str(n): cast(Any, SimpleNamespace(kill=lambda: None)) for n in range(versions)})
        bench.refill()
        count = len(bench._spares)
        await bench.close()
        return count

    assert asyncio.run(kept()) == spares
