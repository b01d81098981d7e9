"""Background work of a session: errors are logged, and shown to the user at once."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp.client import EditorConnection

log = logging.getLogger("kernel-lsp")


class Background:
    """The tasks under way."""

    def __init__(self, client: EditorConnection) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def complain(self, error: Exception) -> None:
        """Show the user an error that belongs to no request."""
        if isinstance(error, KernelLspError):
            self._client.show(error.with_place, types.MessageType.Error)
        elif isinstance(error, JsonRpcException):
            log.warning("the client refused a request: %s", error)
        else:
            log.error("work in the background failed", exc_info=error)
            self._client.show("Something went wrong in kernel-lsp; its log says what.", types.MessageType.Error)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in tuple(self._tasks):
            task.cancel()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.complain(error)
