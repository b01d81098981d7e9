"""Lanes: each GPU has its own workers and takes items one after another from a queue that all share."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import KernelLspError, RunnerError, unforeseen
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.session import pool_on
from kernel_lsp.runner.pool import ATTEMPTS, Flavour, Pool

_T = TypeVar("_T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Lane:
    """One GPU, or the emulator.

    Attributes:
        gpu: None for the emulator.
        pool: its workers.
        builders: build workers of that pool.
        settings: the settings, with its share of the CPU's cores.
        say: called with its present activity.
    """

    gpu: Gpu | None
    pool: Pool
    builders: Builders
    settings: Settings
    say: Callable[[str], None]


async def run_lanes(
    queue: deque[_T],
    gpus: Sequence[Gpu],
    settings: Settings,
    attend: Callable[[Lane, _T], Awaitable[None]],
    fail: Callable[[_T, KernelLspError], None],
    say: Callable[[str, str], None],
) -> None:
    """Process every item of the queue; a broken pool is replaced, and its item tried once more.

    Args:
        queue: what is to be done; `attend` may look at what comes next.
        gpus: one lane each; none is one lane on the emulator.
        settings: those in force.
        attend: does one thing.
        fail: takes what could not be done, and why.
        say: takes a lane's name and what it does.
    """
    lanes = max(1, min(len(gpus), len(queue)))
    share = max(1, settings.runner.compile_workers // lanes)
    settings = settings.model_copy(update={"runner": settings.runner.model_copy(update={"compile_workers": share})})
    tries: dict[_T, int] = {}

    async def run(gpu: Gpu | None) -> None:
        name = f"GPU {gpu.index}" if gpu else "emulator"
        while queue:
            async with pool_on(gpu, settings) as pool:
                builders = Builders(pool, settings, target_device(gpu, settings.arch))
                lane = Lane(gpu, pool, builders, settings, lambda what: say(name, what))
                pool.preload(Flavour.BUILD, Flavour.GPU if gpu else Flavour.EMULATE)
                while queue:
                    item = queue.popleft()
                    tries[item] = tries.get(item, 0) + 1
                    try:
                        await attend(lane, item)
                    except Exception as error:  # a failure on one item must not stop the others
                        broken = error if isinstance(error, KernelLspError) else unforeseen(error)
                        again = isinstance(broken, RunnerError)
                        if again and tries[item] < ATTEMPTS:
                            queue.appendleft(item)
                        else:
                            fail(item, broken)
                        if again:
                            break
                builders.close()
        say(name, "done")

    async with asyncio.TaskGroup() as group:
        for gpu in gpus[:lanes] or [None]:
            group.create_task(run(gpu))
