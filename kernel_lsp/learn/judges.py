"""Where the answers of a policy are judged: here, in sessions that stay open, or in the lanes of a pool."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.session import Pools
from kernel_lsp.judge.target import Target
from kernel_lsp.learn.answer_lane import JUDGE_ANSWER, AnswerCalls, lane_judge
from kernel_lsp.learn.environment import KernelEnvironment, Memory, open_environment
from kernel_lsp.model.profile import Profile
from kernel_lsp.pool.kept import free_share
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.store.store import Store


class Judges(Protocol):
    """Judges of kernels."""

    def open(
        self, target: Target, settings: Settings, memory: Memory
    ) -> AbstractAsyncContextManager[KernelEnvironment]:
        """Return a context with the environment of a kernel; see `open_environment`."""
        ...

    def at_work(self, show: Callable[[str], None]) -> AbstractAsyncContextManager[object]:
        """Return a context within which answers are judged; `show` takes what lanes do, in a few words."""
        ...

    def room(self) -> float:
        """Return the share of memory that is free for more environments."""
        ...

    async def rest(self) -> None:
        """Leave the memory of GPUs to others; the next environment takes it again."""
        ...


class JudgesHere:
    """Judges on one GPU of this machine, or its emulator: of kernels side by side, one measures at a time.

    Args:
        pools: of workers.
        profile: of the policy.
        store: takes verdicts and turns.
        gpu: whose memory is looked at; None for this machine's.
    """

    def __init__(self, pools: Pools, profile: Profile, store: Store, gpu: Gpu | None) -> None:
        self._pools, self._profile, self._store, self._gpu = pools, profile, store, gpu

    def open(
        self, target: Target, settings: Settings, memory: Memory
    ) -> AbstractAsyncContextManager[KernelEnvironment]:
        """Return a context with the environment of a kernel, which has its session."""
        return open_environment(target, self._profile, settings, self._store, self._pools.now(), memory)

    def at_work(self, show: Callable[[str], None]) -> AbstractAsyncContextManager[object]:
        """Return a context that needs nothing and shows nothing."""
        return nullcontext(show)

    def room(self) -> float:
        """Return the share of the GPU's memory that is free, or of this machine's where there is none."""
        return free_share(self._gpu)

    async def rest(self) -> None:
        """End the workers."""
        await self._pools.end()


class JudgesOnLanes:
    """Judges in the lanes of a pool, with the settings that the pool was opened with.

    Args:
        pool: of the lanes.
        profile: of the policy.
        store: takes verdicts and turns.
    """

    def __init__(self, pool: LanePool, profile: Profile, store: Store) -> None:
        self._profile, self._store = profile, store
        self._calls = AnswerCalls(pool, JUDGE_ANSWER, self._say)
        self._show: Callable[[str], None] = lambda _: None

    @asynccontextmanager
    async def open(self, target: Target, settings: Settings, memory: Memory) -> AsyncGenerator[KernelEnvironment]:
        """Open the environment of a kernel, which a lane has measured."""
        judge = await lane_judge(self._calls, target)
        yield KernelEnvironment(judge, self._profile, settings, self._store, memory)

    def at_work(self, show: Callable[[str], None]) -> AbstractAsyncContextManager[object]:
        """Return the context in which lanes take answers."""
        self._show = show
        return self._calls

    def _say(self, lane: str, what: str) -> None:
        self._show(f"{lane}: {what}")

    def room(self) -> float:
        """Return 1: lanes look after their own memory."""
        return 1.0

    async def rest(self) -> None:
        """End the lanes' workers."""
        self._calls.pool.rest()


@asynccontextmanager
async def opened_judges(
    pool: LanePool | None, settings: Settings, profile: Profile, store: Store, gpu: Gpu | None
) -> AsyncGenerator[Judges]:
    """Open the judges of a pool, or without one of this machine; see `JudgesHere`."""
    async with Pools(settings) as pools:
        yield JudgesOnLanes(pool, profile, store) if pool else JudgesHere(pools, profile, store, gpu)
