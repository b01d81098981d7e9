"""Processes of a lane that use its GPU stay on the cores beside it, where other lanes share the machine."""

import os
from types import SimpleNamespace

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.device import nvml
from kernel_lsp.device.nvml import Gpu, cores_near
from kernel_lsp.pool import lane
from kernel_lsp.pool.lane import opened_lane
from kernel_lsp.runner.pool import Flavour, Pool

H200 = Gpu(0, "NVIDIA H200", "GPU-1", "sm_90", "580.1", 140 << 30)


@pytest.mark.parametrize(
    ("masks", "ours", "near"),
    [
        ((0b1100, 1), {0, 1, 2, 3, 64, 65}, {2, 3, 64}),
        ((1 << 40,), {0, 1}, {0, 1}),  # a container's cores are on another node
        (None, {0, 1}, {0, 1}),
    ],
)
def test_cores_near_a_gpu_are_those_of_its_node_that_are_ours(masks, ours, near, monkeypatch):
    class NVMLError(Exception):
        pass

    def affinity(_handle, words):
        assert words == max(ours) // 64 + 1
        if masks is None:
            raise NVMLError
        return masks

    driver = SimpleNamespace(
        NVMLError=NVMLError, nvmlDeviceGetHandleByUUID=lambda _: 1, nvmlDeviceGetCpuAffinity=affinity
    )
    monkeypatch.setattr(nvml, "_nvml", lambda: driver)
    monkeypatch.setattr(nvml.os, "sched_getaffinity", lambda _: ours)
    assert cores_near(H200) == near


@pytest.mark.asyncio
async def test_what_times_stays_there_and_what_builds_does_not():
    core = frozenset({max(os.sched_getaffinity(0))})
    async with Pool("no GPU", cores=core) as pool:
        pool.preload(Flavour.GPU, Flavour.COMPILE)
        places = {flavour: (await task).process.pid for flavour, task in pool._zygotes.items()}
        found = {flavour: os.sched_getaffinity(pid) for flavour, pid in places.items()}
    assert found == {Flavour.GPU: core, Flavour.COMPILE: os.sched_getaffinity(0)}


@pytest.mark.asyncio
async def test_a_lane_by_itself_uses_all_cores_and_evidence_says_so(monkeypatch):
    monkeypatch.setattr(lane, "cores_near", lambda _: frozenset({3, 5}))
    monkeypatch.setattr(lane, "target_device", lambda *_: None)
    monkeypatch.setattr(lane.GpuFitness, "__init__", lambda self, _: setattr(self, "_faults", None))
    for lanes, cores in ((1, frozenset()), (2, {3, 5})):
        async with opened_lane(H200, load_settings()[0], "GPU 0", lambda _: None, lanes) as opened:
            assert opened.pool.cores == cores
            assert (opened.where.lanes, opened.where.cores) == (lanes, len(cores) or None)
