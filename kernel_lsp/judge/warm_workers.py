"""Keep processes ready for versions to come."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Never

from kernel_lsp.errors import RunnerError
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import start
from kernel_lsp.runner.worker import Worker

_WARM = 3  # one judgement takes one process, two fresh ones to confirm a gain, and one for other sizes
_MORE_WARM = 8
_FEW_WARM, _FEWER_WARM = 2, 5  # refill when at most so many of them are left


class WarmWorkers:
    """A stock of ready workers; `set_up` starts one."""

    def __init__(self, set_up: Callable[[], Coroutine[object, Never, Worker]]) -> None:
        self._set_up = set_up
        self._ready: list[asyncio.Task[Worker]] = []

    def __len__(self) -> int:
        return len(self._ready)

    def refill(self, *, plenty: bool) -> None:
        """Start setting up workers if few are left; more of them where there is `plenty` of memory.

        They are set up together: timing waits for all of them, which takes as long as for one.
        """
        most, few = (_MORE_WARM, _FEWER_WARM) if plenty else (_WARM, _FEW_WARM)
        if len(self._ready) <= few:
            self._ready += [start(self._set_up()) for _ in range(most - len(self._ready))]

    async def settle(self) -> None:
        """Wait until no worker is being set up."""
        if self._ready:
            await asyncio.wait(self._ready)

    async def take(self) -> Worker:
        """Return a ready worker, or else a new one; raises what `set_up` raises."""
        if not self._ready:
            return await self._set_up()
        try:
            return await self._ready.pop(0)
        except RunnerError:
            return await self._set_up()

    async def close(self) -> None:
        """End all workers."""
        ready, self._ready = self._ready, []
        for worker in ready:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError, RunnerError, WorkerFailure):
                (await worker).kill()
