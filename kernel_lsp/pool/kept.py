"""Keeps what takes seconds to open, such as a judge's sessions, open from one use to the next as memory allows.

The next one can be opened ahead, beside others in use, and nobody who uses an open one waits for that.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

from kernel_lsp.device.host_memory import host_memory
from kernel_lsp.device.nvml import Gpu, free_bytes
from kernel_lsp.errors import NoRoomError
from kernel_lsp.runner.shield import start

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
        self._ahead: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def using(
        self, key: str, opened: Callable[[], AbstractAsyncContextManager[T]], *, keep: bool = True
    ) -> AsyncGenerator[T]:
        """Yield the context of a key, which `opened` makes where it is not open.

        It stays open as long as the block lasts, and after it if it is to be kept. Where memory is short, this waits
        until others are no longer used.
        """
        if self._ready(key):
            one = self._latest(key)
            self._used[key] += 1
        else:
            async with self._opening:  # one after another, for each takes memory that the next one looks for
                one = await self._of(key, opened)
                self._used[key] += 1
        try:
            yield one
        finally:
            self._used[key] -= 1
            if not keep and key in self._open and not self._used[key]:
                await self._close(key)
            self._left.set()

    def foresee(self, key: str, opened: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """Start to open the context of a key, for a later use, unless another one is being opened ahead.

        An error is told by that use, which tries again.
        """
        if (self._ahead is None or self._ahead.done()) and not self._ready(key):
            self._ahead = start(self._open_ahead(key, opened))

    async def _open_ahead(self, key: str, opened: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        with contextlib.suppress(Exception):
            async with self._opening:
                await self._of(key, opened)

    def _ready(self, key: str) -> bool:
        return key in self._open and (self._used[key] > 0 or self._usable(self._open[key][1]))

    def _latest(self, key: str) -> T:
        """Return what is open under a key, as the one that was used last."""
        self._open[key] = self._open.pop(key)
        return self._open[key][1]

    async def _of(self, key: str, opened: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        if self._ready(key):
            return self._latest(key)
        if key in self._open:
            await self._close(key)
        while self._open and (len(self._open) >= MOST or self._room() < LEAST_FREE):
            await self._leaves()
        while True:
            stack = AsyncExitStack()
            try:
                one = await stack.enter_async_context(opened())
            except NoRoomError:
                if not self._open:
                    raise
                await self._leaves()
                continue
            self._open[key] = stack, one
            return one

    async def _leaves(self) -> None:
        """Close the one of those not in use that was used longest ago, or wait until one is no longer used."""
        if (idle := next((one for one in self._open if not self._used[one]), None)) is not None:
            await self._close(idle)
        else:
            self._left.clear()
            await self._left.wait()

    async def close(self) -> None:
        """Close all of them; they can be asked for again."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.wait({self._ahead})
        for key in list(self._open):
            await self._close(key)

    async def _close(self, key: str) -> None:
        stack, _ = self._open.pop(key)
        await stack.aclose()
