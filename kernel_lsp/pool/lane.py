"""A lane: one GPU, or the emulator, with workers of its own. A lane does one task at a time."""

import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.nvml import Gpu, cores_near
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.session import Session, open_session, pool_on
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Where
from kernel_lsp.pool.fitness import GpuFitness
from kernel_lsp.pool.kept import Kept, free_share
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
        sessions: those that stay open from one task to the next.
        fitness: of its GPU.
    """

    gpu: Gpu | None
    pool: Pool
    builders: Builders
    settings: Settings
    where: Where
    say: Callable[[str], None]
    sessions: Kept[Session]
    fitness: GpuFitness

    async def require_fit(self, beside: frozenset[int] = frozenset()) -> None:
        """Check that the GPU is fit to measure on; `beside` are processes of other lanes, which may be on it too.

        Raises:
            LaneUnfitError: it is not.
        """
        await self.fitness.require(self.pool.pids() | beside)

    def session(
        self, target: Target, settings: Settings | None = None, *, keep: bool = True
    ) -> AbstractAsyncContextManager[Session]:
        """Return a context with the session of a target: open from an earlier task, opened ahead, or opened now.

        Args:
            target: the kernel and its workload.
            settings: others than the lane's.
            keep: False to close it at the end of the block.

        Raises:
            KernelLspError: the baseline or the workload cannot be used, or workers cannot be started.
        """
        return self.sessions.using(self._key(target, settings), self._opening(target, settings), keep=keep)

    def foresee(self, target: Target, settings: Settings | None = None) -> None:
        """Start to open the session of a target that is used next, beside the one in use; see `session`.

        Its timing waits for its turn on the GPU (`runner.turns`), and all of it until there is room in memory.
        """
        self.sessions.foresee(self._key(target, settings), self._opening(target, settings))

    def _key(self, target: Target, settings: Settings | None) -> str:
        """Return what tells sessions apart: one that was opened to ask less of candidates must not judge them."""
        return f"{target.key} {(settings or self.settings).judge.model_dump_json()}"

    def _opening(
        self, target: Target, settings: Settings | None = None
    ) -> Callable[[], AbstractAsyncContextManager[Session]]:
        return lambda: open_session(target, settings or self.settings, self.pool, self.builders)


@asynccontextmanager
async def opened_lane(
    gpu: Gpu | None, settings: Settings, name: str, say: Callable[[str], None], lanes: int = 1
) -> AsyncGenerator[Lane]:
    """Open a lane of this process; its workers end with it.

    Beside other lanes its timed processes stay on the GPU's NUMA node.

    Args:
        gpu: the lane's; None is the emulator.
        settings: those in force, with the lane's share of cores.
        name: of the lane, for people.
        say: called with its present activity.
        lanes: of this machine, this one among them.
    """
    cores = cores_near(gpu) if gpu and lanes > 1 else frozenset[int]()
    where = Where(
        host=socket.gethostname(),
        lane=name,
        gpu=gpu.uuid if gpu else None,
        pid=os.getpid(),
        lanes=lanes,
        cores=len(cores) or None,
    )
    async with pool_on(gpu, settings, cores) as pool:
        builders = Builders(pool, settings, target_device(gpu, settings.arch), misaligned=gpu is not None)
        try:
            kept = Kept[Session](lambda: free_share(gpu), lambda session: session.whole)
            with GpuFitness(gpu) as fitness:
                async with kept as sessions:
                    yield Lane(gpu, pool, builders, settings, where, say, sessions, fitness)
        finally:
            builders.close()


def lane_name(gpu: Gpu | None) -> str:
    """Return the name of a machine's lane, such as `GPU 0`."""
    return f"GPU {gpu.index}" if gpu else "emulator"


def shared(settings: Settings, lanes: int) -> Settings:
    """Return the settings of one of several lanes of a machine, each with its share of the cores."""
    share = max(1, settings.runner.compile_workers // lanes)
    return settings.model_copy(update={"runner": settings.runner.model_copy(update={"compile_workers": share})})
