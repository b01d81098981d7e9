"""Processes that are set up before there is a version for them."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Never

from kernel_lsp.errors import RunnerError
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import start
from kernel_lsp.runner.worker import Worker

PLENTY_BYTES = 32 << 30
"""Memory of a GPU from which on it has room for more spares: each takes a GiB."""
_SPARES = 3  # one judgement takes a process, and two fresh ones to confirm a gain
_MORE_SPARES = 6
_FEW_SPARES = 2  # that are left when others are made


class Spares:
    """Keeps some workers ready; `set_up` makes one."""

    def __init__(self, set_up: Callable[[], Coroutine[object, Never, Worker]]) -> None:
        self._set_up = set_up
        self._spares: list[asyncio.Task[Worker]] = []

    def __len__(self) -> int:
        return len(self._spares)

    def refill(self, *, plenty: bool) -> None:
        """Begin to set up workers if few are left; more of them where there is `plenty` of room.

        Several together: before the next version is timed they are waited for, which takes as long for one.
        """
        if len(self._spares) <= _FEW_SPARES:
            most = _MORE_SPARES if plenty else _SPARES
            self._spares += [start(self._set_up()) for _ in range(most - len(self._spares))]

    async def settle(self) -> None:
        """Wait until none is being set up."""
        if self._spares:
            await asyncio.wait(self._spares)

    async def take(self) -> Worker:
        """Return a worker that is set up already, or else a new one; raises as `set_up`."""
        if not self._spares:
            return await self._set_up()
        try:
            return await self._spares.pop(0)
        except RunnerError:
            return await self._set_up()

    async def close(self) -> None:
        """End all."""
        for spare in self._spares:
            spare.cancel()
            with contextlib.suppress(asyncio.CancelledError, RunnerError, WorkerFailure):
                (await spare).kill()
