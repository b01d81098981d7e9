"""Keeps the environments of a policy's kernels open from step to step or round to round, as far as memory allows.

Opening one takes the judge some seconds, and a step asks the same kernels again and again. Several are used side by
side, so that the model answers on some kernels while the judge is at another: only one of them measures at a time.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.host_memory import host_memory
from kernel_lsp.device.nvml import Gpu, free_bytes
from kernel_lsp.judge.target import Target
from kernel_lsp.learn.environment import KernelEnvironment, Memory, open_environment
from kernel_lsp.model.profile import Profile
from kernel_lsp.runner.pool import Pool
from kernel_lsp.store.store import Store

MOST = 8
"""Environments that are open at once, each with some processes of its own."""
LEAST_FREE = 0.25
"""Share of the memory, of the GPU or of this machine without one, that is left free for others to open."""


def free_share(gpu: Gpu | None) -> float:
    """Return the share of a GPU's memory that is free, or of this machine's where there is none."""
    if gpu is not None:
        return free_bytes(gpu) / gpu.memory_bytes
    total, free = host_memory()
    return free / total


@dataclass
class KeptEnvironments:
    """Environments by their kernels' keys; those that were used last stay. A context manager.

    Attributes:
        profile: of the policy.
        store: takes verdicts and turns.
        pool: returns the pool of workers.
        room: returns the share of memory that is free.
    """

    profile: Profile
    store: Store
    pool: Callable[[], Pool]
    room: Callable[[], float]
    _open: dict[str, tuple[AsyncExitStack, KernelEnvironment]] = field(
        default_factory=dict[str, tuple[AsyncExitStack, KernelEnvironment]]
    )
    _memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    _used: Counter[str] = field(default_factory=Counter[str])
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _measuring: asyncio.Lock = field(default_factory=asyncio.Lock)
    _left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def using(self, key: str, target: Target, settings: Settings) -> AsyncGenerator[KernelEnvironment]:
        """Yield the environment of a kernel, opened if it is not open; what was judged in it before is remembered.

        It stays open as long as the block lasts. Where memory is short, this waits until others are no longer used.

        Raises:
            WorkloadError: the kernel itself is wrong, or its workload cannot tell right from wrong.
            KernelLspError: the kernel, its workload or the profile cannot be used.
        """
        async with self._opening:  # one after another, for each takes memory that the next one looks for
            environment = await self._of(key, target, settings)
            self._used[key] += 1
        try:
            yield environment
        finally:
            self._used[key] -= 1
            self._left.set()

    async def _of(self, key: str, target: Target, settings: Settings) -> KernelEnvironment:
        if key in self._open and not self._open[key][1].whole and not self._used[key]:
            await self._close(key)
        if key in self._open:
            self._open[key] = self._open.pop(key)  # the latest is last
            return self._open[key][1]
        while self._open and (len(self._open) >= MOST or self.room() < LEAST_FREE):
            if (idle := next((one for one in self._open if not self._used[one]), None)) is not None:
                await self._close(idle)
            else:
                self._left.clear()
                await self._left.wait()
        stack, memory = AsyncExitStack(), self._memories.setdefault(key, {})
        opening = open_environment(target, self.profile, settings, self.store, self.pool(), memory, self._measuring)
        async with self._measuring:
            environment = await stack.enter_async_context(opening)
        self._open[key] = stack, environment
        return environment

    async def close(self) -> None:
        """Close all of them, whose workers end; they can be asked for again."""
        for key in list(self._open):
            await self._close(key)

    async def _close(self, key: str) -> None:
        stack, _ = self._open.pop(key)
        await stack.aclose()
