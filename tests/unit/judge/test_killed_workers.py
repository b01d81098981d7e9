"""A process of the judge that is killed from outside says nothing of the candidate; another session judges it."""

import os
import signal
from pathlib import Path

import pytest

from kernel_lsp.config.settings import JudgeSettings, PathSettings, Settings
from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.session import Pools, open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome

KERNEL = "__global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n"
WORKLOAD = """import torch

CASES = [dict(n=32)]


def inputs(n):
    return (torch.rand(n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.twice[1, x.numel()](x, y)
    return y
"""


@pytest.mark.asyncio
async def test_what_a_killed_oracle_leaves_unjudged_is_judged_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "twice.cu").write_text(KERNEL)
    (tmp_path / "twice_workload.py").write_text(WORKLOAD)
    paths = PathSettings(data=tmp_path / "data", cache=tmp_path / "cache")
    settings = Settings(paths=paths, judge=JudgeSettings(families=["normal"]))
    target = make_target(tmp_path / "twice.cu")
    candidate = target.version(KERNEL.replace("2 * x[threadIdx.x]", "x[threadIdx.x] + x[threadIdx.x]"), "sum", "user")
    async with Pools(Settings()) as pools:
        async with open_session(target, settings, pools.now()) as session:
            assert session.harness is not None
            oracle = session.harness._oracle  # pyright: ignore[reportPrivateUsage]
            assert oracle is not None
            os.kill(oracle.pid, signal.SIGKILL)
            with pytest.raises(UnjudgedError, match="oracle process"):
                await session.judge(candidate, always_run=True)
        await pools.end()
        async with open_session(target, settings, pools.now()) as session:
            verdict = await session.judge(candidate, always_run=True)
    assert verdict.verdict is Outcome.UNTIMED, verdict.reason
