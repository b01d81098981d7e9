"""Keep processes ready for versions to come."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Never

from kernel_lsp.errors import RunnerError
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import start
from kernel_lsp.runner.worker import Worker

_SPARES = 3  # one judgement takes one process, and two fresh ones to confirm a gain
_MORE_SPARES = 6
_FEW_SPARES = 2  # refill when at most so many are left


class Spares:
    """A stock of ready workers; `set_up` starts one."""

    def __init__(self, set_up: Callable[[], Coroutine[object, Never, Worker]]) -> None:
        self._set_up = set_up
        self._spares: list[asyncio.Task[Worker]] = []

    def __len__(self) -> int:
        return len(self._spares)

    def refill(self, *, plenty: bool) -> None:
        """Start setting up workers if few are left; more of them where there is `plenty` of memory.

        They are set up together: timing waits for all of them, which takes as long as for one.
        """
        if len(self._spares) <= _FEW_SPARES:
            most = _MORE_SPARES if plenty else _SPARES
            self._spares += [start(self._set_up()) for _ in range(most - len(self._spares))]

    async def settle(self) -> None:
        """Wait until no worker is being set up."""
        if self._spares:
            await asyncio.wait(self._spares)

    async def take(self) -> Worker:
        """Return a ready worker, or else a new one; raises what `set_up` raises."""
        if not self._spares:
            return await self._set_up()
        try:
            return await self._spares.pop(0)
        except RunnerError:
            return await self._set_up()

    async def close(self) -> None:
        """End all workers."""
        spares, self._spares = self._spares, []
        for spare in spares:
            spare.cancel()
            with contextlib.suppress(asyncio.CancelledError, RunnerError, WorkerFailure):
                (await spare).kill()
