"""The judge beside a model server on the same GPU."""

from pathlib import Path

import pytest

from kernel_lsp.config.settings import ModelSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio]
EXAMPLE = Path(__file__).parents[3] / "examples/cuda/saxpy.cu"


async def verdict_on_itself(settings):
    async with open_session(make_target(EXAMPLE), settings) as session:
        again = session.target.version(f"{session.target.source.text}\n// again\n", "itself", "user")
        return await session.judge(again, always_run=True)


async def test_server_is_paused_whenever_something_is_timed(fake, keep):
    keep(fake, gpus=(find_gpus()[0].uuid,))
    verdict = await verdict_on_itself(Settings())
    commands = fake.commands()
    assert commands == ["/pause", "/resume"] * (len(commands) // 2)
    assert len(commands) >= 4, "the baseline is measured, then both"
    assert verdict.evidence.device is not None
    assert [(s.name, s.how) for s in verdict.evidence.device.model_servers] == [("tiny", "paused")]
    assert not verdict.evidence.device.shared


async def test_server_sleeps_through_a_session_that_lacks_memory(fake, keep):
    keep(fake, gpus=(find_gpus()[0].uuid,), sleeps=True)
    verdict = await verdict_on_itself(Settings(model=ModelSettings(reserve=2**60)))
    assert fake.commands() == ["/sleep", "/wake_up"]
    assert verdict.evidence.device is not None
    assert [s.how for s in verdict.evidence.device.model_servers] == ["asleep"]


async def test_a_server_that_does_not_stop_makes_the_gpu_a_shared_one(fake, keep):
    keep(fake, gpus=(find_gpus()[0].uuid,))
    fake.routes["/pause"] = (500, "")
    verdict = await verdict_on_itself(Settings())
    assert verdict.evidence.device is not None
    assert verdict.evidence.device.shared
    assert [s.how for s in verdict.evidence.device.model_servers] == ["busy"]
