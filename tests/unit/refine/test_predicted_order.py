"""Without a GPU candidates are ordered by predicted times, from a few emulated blocks of the largest case."""

from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.compiler.builds.plan import Launch, LaunchTrace
from kernel_lsp.config.load import load_settings
from kernel_lsp.device.device import device_named
from kernel_lsp.judge.sampling import CaseSample, sample_largest
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine.prediction import Predictor, SampledVersion, predicted_ratio
from kernel_lsp.runner.emulated import KernelTotals, LineCounters, SampledLaunch, SampledRun
from kernel_lsp.source.candidate import Candidate

H200 = device_named("H200")
GRID = 10_000


def version(*, grid: int = GRID, block: int = 256, blocks: int = 4, **counts: int) -> SampledVersion:
    """A version of which some blocks were sampled; `counts` are those of all of them."""
    opcodes = {"add": counts.pop("instructions", 400 * blocks)}
    launch = Launch("k", (grid, 1, 1), (block, 1, 1))
    built = SimpleNamespace(plans=(LaunchTrace(1, (launch,)),), build=SimpleNamespace(binary=None))
    run = SampledRun(
        (),
        (SampledLaunch("k", tuple(range(blocks)), grid, 100, None),),
        None,
        0.0,
        (LineCounters("k", "a.cu", 1, **counts),),
        (KernelTotals("k", 1, blocks, opcodes, 0, 0, False),),
    )
    return SampledVersion(cast(Any, built), CaseSample(1, 1 << 10, run))


def ratio(candidate: SampledVersion, baseline: SampledVersion | None = None) -> float:
    return predicted_ratio(H200, baseline or version(load_requests=1000, load_sectors=4000), candidate)


def test_a_version_takes_as_long_as_itself_however_many_of_its_blocks_were_sampled() -> None:
    assert ratio(version(load_requests=1000, load_sectors=4000)) == pytest.approx(1.0)
    assert ratio(version(load_requests=2000, load_sectors=8000, blocks=8)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("better", "counts"),
    [
        (True, {"load_requests": 250, "load_sectors": 4000}),  # wider loads of the same bytes
        (False, {"load_requests": 1000, "load_sectors": 32_000}),  # each thread its own sector
        (False, {"load_requests": 1000, "load_sectors": 4000, "shared_load_wavefronts": 50_000}),  # bank conflicts
        (False, {"load_requests": 1000, "load_sectors": 4000, "instructions": 90_000}),
        (False, {"load_requests": 1000, "load_sectors": 4000, "atomic_requests": 9000}),
    ],
)
def test_what_a_version_asks_for_moves_its_time(better: bool, counts: dict[str, int]) -> None:
    assert (ratio(version(**counts)) < 0.95) is better
    assert (ratio(version(**counts)) > 1.05) is not better


def test_a_grid_that_leaves_multiprocessors_idle_is_slower() -> None:
    whole = version(load_requests=1000, load_sectors=4000, grid=4 * 132)
    few = version(load_requests=4000, load_sectors=16_000, grid=132 // 2, blocks=2)
    assert ratio(few, whole) > 2


KERNEL = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = 3.0f * x[i * STRIDE % n];
}
"""
WORKLOAD = """
import torch

CASES = [{"n": 131}, {"n": 1 << 18}]


def inputs(n):
    return torch.randn(n, device="cuda"), n


def reference(x, n):
    return 3.0 * x


def launch(module, x, n):
    y = torch.empty_like(x)
    module.scale[(n + 127) // 128, 128](x, y, n)
    return y
"""


def text(stride: str) -> str:
    return KERNEL.replace("STRIDE", stride)


@pytest.mark.asyncio
async def test_the_large_case_is_sampled_and_a_scattered_version_predicted_to_be_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "scale.cu").write_text(text("1"))
    (tmp_path / "scale_workload.py").write_text(dedent(WORKLOAD))
    overrides = {"judge.families": ["normal"], "paths.cache": tmp_path / "cache", "arch": "sm_90"}
    settings, _ = load_settings(overrides=overrides)
    async with open_session(make_target(tmp_path / "scale.cu"), settings) as session:
        assert session.measured is not None
        sample = await sample_largest(session.measured.harness, session.measured.baseline)
        assert sample is not None
        assert (sample.case, [one.grid_blocks for one in sample.run.launches]) == (1, [2048])
        base = session.target.baseline

        def like(kernel: str) -> Candidate:
            return replace(base, kernel=replace(base.kernel, text=kernel), label="other")

        predictor, found = Predictor(session), list[float | None]()
        for candidate in (base, like(text("1").replace("128", "64 * 2")), like(text("33")), like(text("1") + "//")):
            built = await session.builders.build(session.target.workload, candidate)
            found.append(await predictor.ratio(candidate, built))
        same, alike, scattered, noted = found
        assert same == alike == noted == pytest.approx(1.0)
        assert scattered is not None
        assert scattered > 1.2
