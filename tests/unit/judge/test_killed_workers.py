"""A process of the judge that is killed from outside says nothing of the candidate; another session judges it."""

import os
import signal
from pathlib import Path

import pytest

from kernel_lsp.config.settings import JudgeSettings, PathSettings, Settings
from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.session import Pools, Session, open_session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import Worker
from kernel_lsp.source.candidate import Candidate

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


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "twice.cu").write_text(KERNEL)
    (tmp_path / "twice_workload.py").write_text(WORKLOAD)
    return make_target(tmp_path / "twice.cu")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    paths = PathSettings(data=tmp_path / "data", cache=tmp_path / "cache")
    return Settings(paths=paths, judge=JudgeSettings(families=["normal"]))


def summed(target: Target) -> Candidate:
    return target.version(KERNEL.replace("2 * x[threadIdx.x]", "x[threadIdx.x] + x[threadIdx.x]"), "sum", "user")


def oracle_of(session: Session) -> Worker:
    assert session.harness is not None
    oracle = session.harness._oracle  # pyright: ignore[reportPrivateUsage]
    assert oracle is not None
    return oracle


@pytest.mark.asyncio
async def test_what_a_killed_oracle_leaves_unjudged_is_judged_by_another(target: Target, settings: Settings) -> None:
    async with Pools(Settings()) as pools:
        async with open_session(target, settings, pools.now()) as session:
            os.kill(oracle_of(session).pid, signal.SIGKILL)
            with pytest.raises(UnjudgedError, match="oracle process"):
                await session.judge(summed(target), always_run=True)
        await pools.end()
        async with open_session(target, settings, pools.now()) as session:
            verdict = await session.judge(summed(target), always_run=True)
    assert verdict.verdict is Outcome.UNTIMED, verdict.reason


@pytest.mark.asyncio
async def test_an_oracle_that_lost_its_gpu_is_not_asked_again(
    target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An assertion of torch's on the GPU, as of an index that is too large, fails whatever comes after it."""

    async def lost(*_: object, **__: object) -> None:
        raise WorkerFailure("AcceleratorError", "CUDA error: device-side assert triggered")

    async with open_session(target, settings) as session:
        monkeypatch.setattr(oracle_of(session), "ask", lost)
        with pytest.raises(UnjudgedError, match="device-side assert"):
            await session.judge(summed(target), always_run=True)
        assert session.harness is not None
        assert not session.harness.whole
