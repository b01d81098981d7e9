"""A lane: one GPU, or the emulator, with workers of its own. A lane does one task at a time."""

import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.session import pool_on
from kernel_lsp.judge.verdict import Where
from kernel_lsp.runner.pool import Pool


@dataclass(frozen=True, slots=True)
class Lane:
    """One GPU, or the emulator.

    Attributes:
        gpu: None for the emulator.
        pool: its workers.
        builders: build workers of that pool.
        settings: the settings, with its share of the CPU's cores.
        where: the lane, as verdicts name it.
        say: called with its present activity.
    """

    gpu: Gpu | None
    pool: Pool
    builders: Builders
    settings: Settings
    where: Where
    say: Callable[[str], None]


@asynccontextmanager
async def opened_lane(
    gpu: Gpu | None, settings: Settings, name: str, say: Callable[[str], None]
) -> AsyncGenerator[Lane]:
    """Open a lane of this process; its workers end with it.

    Args:
        gpu: the lane's; None is the emulator.
        settings: those in force, with the lane's share of cores.
        name: of the lane, for people.
        say: called with its present activity.
    """
    where = Where(host=socket.gethostname(), lane=name, gpu=gpu.uuid if gpu else None, pid=os.getpid())
    async with pool_on(gpu, settings) as pool:
        builders = Builders(pool, settings, target_device(gpu, settings.arch), misaligned=gpu is not None)
        try:
            yield Lane(gpu, pool, builders, settings, where, say)
        finally:
            builders.close()


def lane_name(gpu: Gpu | None) -> str:
    """Return the name of a machine's lane, such as `GPU 0`."""
    return f"GPU {gpu.index}" if gpu else "emulator"


def shared(settings: Settings, lanes: int) -> Settings:
    """Return the settings of one of several lanes of a machine, each with its share of the cores."""
    share = max(1, settings.runner.compile_workers // lanes)
    return settings.model_copy(update={"runner": settings.runner.model_copy(update={"compile_workers": share})})
