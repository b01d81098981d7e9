"""Keeps what takes seconds to open, such as a judge's sessions, open from one use to the next as memory allows."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

from kernel_lsp.device.host_memory import host_memory
from kernel_lsp.device.nvml import Gpu, free_bytes

MOST = 8
"""Contexts that are open at once, each with some processes of its own."""
LEAST_FREE = 0.25
"""Share of the memory, of the GPU or of this machine without one, that is left free for others to open."""

T = TypeVar("T")


def free_share(gpu: Gpu | None) -> float:
    """Return the share of a GPU's memory that is free, or of this machine's where there is none."""
    if gpu is not None:
        return free_bytes(gpu) / gpu.memory_bytes
    total, free = host_memory()
    return free / total


class Kept(Generic[T]):
    """Open contexts by their keys; those that were used last stay. A context manager.

    Args:
        room: returns the share of memory that is free.
        usable: returns False for one that has to be opened anew.
    """

    def __init__(self, room: Callable[[], float], usable: Callable[[T], bool]) -> None:
        self._room, self._usable = room, usable
        self._open: dict[str, tuple[AsyncExitStack, T]] = {}
        self._used = Counter[str]()
        self._opening, self._left = asyncio.Lock(), asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def using(self, key: str, opened: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncGenerator[T]:
        """Yield the context of a key, which `opened` makes where it is not open.

        It stays open as long as the block lasts. Where memory is short, this waits until others are no longer used.
        """
        async with self._opening:  # one after another, for each takes memory that the next one looks for
            one = await self._of(key, opened)
            self._used[key] += 1
        try:
            yield one
        finally:
            self._used[key] -= 1
            self._left.set()

    async def _of(self, key: str, opened: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        if key in self._open and not self._usable(self._open[key][1]) and not self._used[key]:
            await self._close(key)
        if key in self._open:
            self._open[key] = self._open.pop(key)  # the latest is last
            return self._open[key][1]
        while self._open and (len(self._open) >= MOST or self._room() < LEAST_FREE):
            if (idle := next((one for one in self._open if not self._used[one]), None)) is not None:
                await self._close(idle)
            else:
                self._left.clear()
                await self._left.wait()
        stack = AsyncExitStack()
        one = await stack.enter_async_context(opened())
        self._open[key] = stack, one
        return one

    async def close(self) -> None:
        """Close all of them; they can be asked for again."""
        for key in list(self._open):
            await self._close(key)

    async def _close(self, key: str) -> None:
        stack, _ = self._open.pop(key)
        await stack.aclose()
