"""What a bench makes of lanes that are lost, with a pool of the test's own."""

import shutil
from typing import ClassVar

import pytest

from kernel_lsp.bench.attend import ResultPart
from kernel_lsp.bench.plan import Comparisons, make_plan
from kernel_lsp.bench.records import Ledger
from kernel_lsp.bench.run import run_bench
from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.pool.queue import LaneLostError
from kernel_lsp.store.store import open_store
from kernel_lsp.workload.suite import find_problems, find_samples
from tests.unit.bench.bench_results import published, result
from tests.unit.bench.kernelbench_command import CANDIDATES, PROBLEMS


class LostLanes:
    """A pool with one lane, which is lost at a candidate; `asked` are the candidates of each request."""

    gpus = ()
    versions: ClassVar[dict[str, str]] = {}

    def __init__(self, fatal: str = "") -> None:
        self.fatal, self.asked = fatal, []

    async def run(self, work, queue, take, say):
        while (request := await queue.next()) is not None:
            self.asked.append([job.sample.index for job in request.jobs])
            await queue.attempt(request, self._attend(request, take))

    async def _attend(self, request, take):
        known = {found.key: found for found in request.known}
        for job in request.jobs:
            if job.key not in known:
                if job.label.endswith(self.fatal or "none"):
                    raise LaneLostError("the lane was lost")
                take(ResultPart(result=result(job.key)))
        for job in request.jobs:
            if request.asked.published:
                take(ResultPart(result=result(job.key, published=published())))


@pytest.fixture
def planned(tmp_path):
    (tmp_path / "candidates").mkdir()
    for name in ("level_1_problem_19_sample_4", "level_1_problem_19_sample_5", "level_1_problem_19_sample_6"):
        shutil.copy(CANDIDATES / f"{name}_kernel.py", tmp_path / "candidates")
    samples = find_samples(tmp_path / "candidates")
    return make_plan(find_problems(PROBLEMS), samples, load_settings()[0], (), {"torch": "2.13"})


async def run(planned, tmp_path, pool, published=False):
    with open_store(tmp_path / "data") as store:
        return await run_bench(planned, Comparisons(False, published), Ledger(tmp_path / "ledger.jsonl"), store, pool)


@pytest.mark.asyncio
async def test_a_candidate_that_loses_its_lanes_costs_no_other(planned, tmp_path):
    pool = LostLanes("sample 5")
    progress = await run(planned, tmp_path, pool)
    assert pool.asked == [[4, 5, 6], [5], [5], [6]]
    assert list(progress.troubles) == ["level 1 problem 19 sample 5"]
    assert [line.key for line in progress.in_order] == [planned.jobs[0].key, planned.jobs[2].key]
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert len(lines) == len(Ledger(tmp_path / "ledger.jsonl").read()) == 2
    again = LostLanes()
    assert not (await run(planned, tmp_path, again)).troubles
    assert again.asked == [[5]]


@pytest.mark.asyncio
async def test_only_missing_parts_are_asked_for_again(planned, tmp_path):
    await run(planned, tmp_path, LostLanes())
    before = (tmp_path / "ledger.jsonl").read_text()
    pool = LostLanes("sample 4")  # has its verdict: only KernelBench's is missing
    assert not (await run(planned, tmp_path, pool, published=True)).troubles
    assert pool.asked == [[4, 5, 6]]
    assert (tmp_path / "ledger.jsonl").read_text().startswith(before)
    done = LostLanes()
    await run(planned, tmp_path, done, published=True)
    assert done.asked == []


@pytest.mark.asyncio
async def test_a_ledger_that_cannot_be_written_is_an_error(planned, tmp_path):
    (tmp_path / "ledger.jsonl").symlink_to(tmp_path / "nowhere/ledger.jsonl")
    with pytest.raises(ConfigurationError, match="The ledger cannot be written"):
        await run(planned, tmp_path, LostLanes())
