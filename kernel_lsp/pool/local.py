"""The lanes of this machine: each GPU has its own workers and takes tasks from a queue that all share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kernel_lsp.compiler.toolchain.tools import versions
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.pool.lane import Lane, lane_name, opened_lane, shared
from kernel_lsp.pool.protocol import AnswerT, RequestT, Work
from kernel_lsp.pool.queue import UNFIT_SECONDS, LaneUnfitError, TaskQueue, left_alone
from kernel_lsp.runner.pool import Flavour

_T = TypeVar("_T")


async def run_lanes(
    queue: TaskQueue[_T],
    gpus: Sequence[Gpu],
    settings: Settings,
    attend: Callable[[Lane, _T], Awaitable[None]],
    say: Callable[[str, str], None],
) -> None:
    """Do every task of the queue; a broken pool of workers is replaced, and a GPU that is not fit is left alone.

    The last GPU at work is used as it is: the judge itself sees and says what disturbs it.

    Args:
        queue: the tasks.
        gpus: one lane each; none is one lane on the emulator.
        settings: those in force.
        attend: does one task in a lane.
        say: takes a lane's name and what it does.
    """
    lanes = max(1, len(gpus) if queue.takes_more else min(len(gpus), len(queue)))
    settings = shared(settings, lanes)

    chosen = gpus[:lanes] or [None]
    at_work = {lane_name(gpu) for gpu in chosen}
    opened: list[Lane] = []

    async def attend_if_fit(lane: Lane, task: _T) -> None:
        if len(at_work) > 1:
            await lane.require_fit(frozenset().union(*(other.pool.pids() for other in opened)))
        await attend(lane, task)

    async def serve(gpu: Gpu | None, name: str, task: _T | None) -> None:
        async with opened_lane(gpu, settings, name, lambda what: say(name, what), lanes) as lane:
            lane.pool.preload(Flavour.BUILD, Flavour.GPU if gpu else Flavour.EMULATE)
            opened.append(lane)
            try:
                while task is not None and await queue.attempt(task, attend_if_fit(lane, task)):
                    task = await queue.next(name)
            finally:
                opened.remove(lane)

    async def run(gpu: Gpu | None) -> None:
        name = lane_name(gpu)
        while (task := await queue.next(name)) is not None:
            try:
                await serve(gpu, name, task)
            except LaneUnfitError as error:
                at_work.discard(name)
                say(name, left_alone(error))
                if error.lasting:
                    return
                await queue.rest(UNFIT_SECONDS)
                at_work.add(name)
        say(name, "done")

    async with asyncio.TaskGroup() as group:
        for gpu in chosen:
            group.create_task(run(gpu))


@dataclass(frozen=True, slots=True)
class LocalPool:
    """GPUs of this machine, or its emulator."""

    gpus: tuple[Gpu, ...]
    settings: Settings

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the versions of compilers and libraries of this machine."""
        return versions()

    async def run(
        self,
        work: Work[RequestT, AnswerT],
        queue: TaskQueue[RequestT],
        take: Callable[[AnswerT], None],
        say: Callable[[str, str], None],
    ) -> None:
        """Do all of the queue; see `LanePool.run`."""

        async def attend(lane: Lane, request: RequestT) -> None:
            await work.attend(lane, request, take, queue.ahead(lane.where.lane, request))

        await run_lanes(queue, self.gpus, self.settings, attend, say)

    def rest(self) -> None:
        """Do nothing: lanes of this machine end with each run."""
