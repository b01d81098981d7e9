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


class WarmWorkers:
    """A stock of ready workers; `set_up` starts one, and `roomy` says whether there is room for more than a few.

    They are set up one after another: eight at once, each with a context on the GPU, take as long as eight in a row,
    and the first of them as long as the last (1.6 s on an H200, one alone 0.3 s).
    """

    def __init__(self, set_up: Callable[[], Coroutine[object, Never, Worker]], roomy: Callable[[], bool]) -> None:
        self._set_up, self._roomy = set_up, roomy
        self._ready: list[Worker] = []
        self._next: asyncio.Task[Worker] | None = None
        self._most = 0
        self._filling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._ready)

    def refill(self, *, many: bool) -> None:
        """Start filling the stock, with `many` as long as there is room."""
        self._most = _MORE_WARM if many else _WARM
        if self._filling is None or self._filling.done():
            self._filling = start(self._fill())

    def stop(self) -> None:
        """Stop filling; a worker that is being set up still gets ready."""
        self._most = 0

    async def settle(self) -> None:
        """Stop filling, and wait until no worker is being set up."""
        self.stop()
        if self._filling is not None:
            await asyncio.wait({self._filling})

    async def take(self) -> Worker:
        """Return a ready worker, or else the next one, or a new one; raises what `set_up` raises.

        One that ends while it is set up, as where somebody kills it, is replaced once: it has met no version yet.
        """
        if self._ready:
            return self._ready.pop(0)
        coming, self._next = self._next, None
        with contextlib.suppress(RunnerError):
            return await (coming if coming is not None else self._set_up())
        return await self._set_up()

    async def close(self) -> None:
        """End all workers."""
        self.stop()
        coming, ready = self._next, self._ready
        self._next, self._ready = None, []
        if coming is not None:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError, RunnerError, WorkerFailure):
                (await coming).kill()
        for worker in ready:
            worker.kill()

    async def _fill(self) -> None:
        while len(self._ready) < self._most and (len(self._ready) < _WARM or self._roomy()):
            coming = self._next = start(self._set_up())
            await asyncio.wait({coming})
            if self._next is not coming:  # somebody took it
                continue
            self._next = None
            if coming.cancelled() or coming.exception() is not None:
                return
            self._ready.append(coming.result())
