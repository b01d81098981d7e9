"""The next job's process, kept ready: it takes seconds to import what judges, ten of them from a cold disk."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp.process import Service, ServiceFailure


class Spare:
    """At most one such process. `start` runs a coroutine in the background."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._start = start
        self._service: Service | None = None
        self._end: asyncio.TimerHandle | None = None

    def keep(self, minutes: float, warm_minutes: float) -> None:
        """Have it ready for so long from now on, 0 asks for nothing; `warm_minutes` is the setting of that name."""
        if minutes <= 0:
            return
        self._forget_end()
        self._end = asyncio.get_running_loop().call_later(60 * minutes, self.close)
        if self._service is None:
            self._service = Service()
            self._start(self._prepare(self._service, warm_minutes))

    def take(self) -> Service:
        """The process that is ready, or one that has yet to be started; whoever takes it ends it."""
        self._forget_end()
        service, self._service = self._service or Service(), None
        return service

    def close(self) -> None:
        """End it."""
        self.take().kill()

    def _forget_end(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    async def _prepare(self, service: Service, warm_minutes: float) -> None:
        try:
            await service.ask("job", {"work": "prepare", "warm_minutes": warm_minutes})
        except (KernelLspError, ServiceFailure):
            if self._service is service:  # what is wrong is said by the job that meets it
                self.close()
