"""A GPU that is broken, slowed down or used by others is left alone while another one is at work, and that is said."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.device.nvml import Gpu, GpuState
from kernel_lsp.pool import fitness, local, queue
from kernel_lsp.pool.fitness import GpuFitness
from kernel_lsp.pool.queue import LaneUnfitError, TaskQueue

pytestmark = pytest.mark.asyncio

GPUS = tuple(Gpu(n, "NVIDIA H200", f"GPU-{n}", "sm_90", "580.1", 140 << 30) for n in range(2))
WELL = GpuState(1980, 300.0, 50, ("power cap",), 2)
OURS = frozenset({10, 11})


class Driver:
    """In place of NVML: the states of a GPU at one look after another, and its Xid numbers."""

    def __init__(self, monkeypatch, *states, xids=()):
        self.states, self.xids, self.asked = list(states), list(xids), []
        monkeypatch.setattr(fitness, "_BETWEEN_SECONDS", 0)
        monkeypatch.setattr(fitness, "Faults", lambda _: SimpleNamespace(drain=self.drain, close=lambda: None))
        monkeypatch.setattr(fitness, "read_state", self.read)
        server = SimpleNamespace(gpus=("GPU-0",), pid=77)
        monkeypatch.setattr(fitness, "running", lambda: (server, SimpleNamespace(gpus=("GPU-9",), pid=78)))
        monkeypatch.setattr(fitness, "members", lambda pid: [pid, pid + 100])

    def drain(self):
        found, self.xids = tuple(self.xids), []
        return found

    def read(self, gpu, ours):
        self.asked.append(ours)
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


async def trouble(watch) -> str:
    try:
        await watch.require(OURS)
    except LaneUnfitError as error:
        return f"{'for good: ' if error.lasting else ''}{error.message}"
    return ""


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([WELL], ""),
        ([replace(WELL, others_percent=None)], ""),
        ([replace(WELL, others_percent=60)], "others keep it busy, 60 % of the time"),
        ([replace(WELL, throttle=("thermal (hardware)",))], "it is slowed down: thermal (hardware)"),
        ([replace(WELL, others_percent=60), WELL], ""),
    ],
)
async def test_what_makes_times_worthless_is_seen_if_it_stays(states, words, monkeypatch):
    driver = Driver(monkeypatch, *states)
    with GpuFitness(GPUS[0]) as watch:
        assert await trouble(watch) == words
    assert set(driver.asked) == {OURS | {77, 177}}, "a model server that is kept quiet is no stranger"


async def test_a_broken_gpu_stays_so_and_a_programs_own_fault_breaks_none(monkeypatch):
    driver = Driver(monkeypatch, WELL, xids=[13, 31, 43, 45])
    with GpuFitness(GPUS[0]) as watch:
        assert await trouble(watch) == ""
        driver.xids = [31, 79]
        for _ in range(2):
            assert await trouble(watch) == "for good: it is broken (Xid 79: fallen off the bus)"


async def test_the_emulator_is_always_fit():
    with GpuFitness(None) as watch:
        assert await trouble(watch) == ""


@pytest.mark.parametrize("lasting", [False, True])
async def test_the_other_gpu_does_its_tasks_and_the_last_one_goes_on(lasting, monkeypatch):
    monkeypatch.setattr(local, "UNFIT_SECONDS", 0.01)
    monkeypatch.setattr(queue, "_LOOK_SECONDS", 0.005)
    looked, done, said = [], [], []

    @asynccontextmanager
    async def opened_lane(gpu, settings, name, say, lanes):
        async def require_fit(beside):
            looked.append((name, beside))
            if name == "GPU 1" or len(done) >= 3:  # both are, in the end
                raise LaneUnfitError("others keep it busy, 60 % of the time", lasting=lasting)

        pool = SimpleNamespace(preload=lambda *_: None, pids=lambda: frozenset({gpu.index}))
        yield SimpleNamespace(require_fit=require_fit, name=name, pool=pool)

    async def attend(lane, task):
        await asyncio.sleep(0.001)
        done.append((lane.name, task))

    def fail(task, error):
        raise AssertionError(error)

    monkeypatch.setattr(local, "opened_lane", opened_lane)
    tasks = TaskQueue(range(20), fail)
    await local.run_lanes(tasks, GPUS, load_settings()[0], attend, lambda *words: said.append(words))
    assert sorted(task for _, task in done) == list(range(20))
    assert {name for name, _ in done[:3]} == {"GPU 0"}
    left = {name: what for name, what in said if what.startswith("left alone")}
    assert left["GPU 1"] == f"left alone{'' if lasting else ' for 30 s'}: others keep it busy, 60 % of the time"
    assert not lasting or left.keys() == {"GPU 1"}, "there was no other"
    assert any(len(beside) > 1 for _, beside in looked), "processes of one lane are no strangers to another"
