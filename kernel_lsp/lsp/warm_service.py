"""The process of the next search or check, kept ready: importing the judge takes seconds, ten from a cold disk."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp.process import Service, ServiceFailure

if TYPE_CHECKING:
    from kernel_lsp.config.settings import Settings


class WarmService:
    """Holds at most one such process. `start` runs a coroutine in the background."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._start = start
        self._service: Service | None = None
        self._end: asyncio.TimerHandle | None = None

    def keep(self, settings: "Settings") -> None:
        """Keep it ready for as long from now on as the settings say; 0 minutes start none."""
        minutes = settings.editor.ready_minutes
        if minutes <= 0:
            return
        self._forget_end()
        self._end = asyncio.get_running_loop().call_later(60 * minutes, self.close)
        if self._service is None:
            self._service = Service()
            self._start(self._prepare(self._service, settings))

    def take(self) -> Service:
        """Return the ready process, or one yet to be started; the caller ends it."""
        self._forget_end()
        service, self._service = self._service or Service(), None
        return service

    def close(self) -> None:
        """End the process."""
        self.take().kill()

    def _forget_end(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    async def _prepare(self, service: Service, settings: "Settings") -> None:
        try:
            await service.ask("job", {"work": "prepare", "settings": settings.model_dump(mode="json")})
        except (KernelLspError, ServiceFailure):
            if self._service is service:  # the job that meets the error reports it
                self.close()
