"""A worker process of the server: `python -m kernel_lsp.lsp.service`.

It reads requests from standard input and answers on standard output, one JSON object on a line each:

    {"id": 1, "kind": "analyse", "params": {...}}      -> {"id": 1, "event": {...}}, any number of times
                                                          {"id": 1, "result": ...} or {"id": 1, "error": {...}}
    {"cancel": 1}                                      -> the request ends with an error of kind "CancelledError"

A kind is a module of `kernel_lsp.lsp.services`; its `opened` is entered at the first request and left when the process
ends. The process ends when its standard input does, and is killed when its parent dies; the zygotes below it notice.
"""

import asyncio
import ctypes
import importlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import msgspec

from kernel_lsp.runner.protocol import describe_error

LARGEST_LINE = 256 << 20

Emit = Callable[[Mapping[str, Any]], None]
"""Sends an event to whoever made the request."""

Handler = Callable[[dict[str, Any], Emit], Awaitable[Any]]
"""Takes a request's parameters; what it returns, and what it emits, must be JSON."""

_PR_SET_PDEATHSIG = 1


class _Service:
    """The requests under way, and the kinds opened for them."""

    def __init__(self, out: Callable[[Mapping[str, Any]], None], stack: AsyncExitStack) -> None:
        self._out, self._stack = out, stack
        self._kinds: dict[str, Handler] = {}
        self._opening = asyncio.Lock()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def take(self, message: Mapping[str, Any]) -> None:
        """Start a request, or cancel one."""
        if "cancel" in message:
            if (task := self._tasks.get(message["cancel"])) is not None:
                task.cancel()
            return
        number = message["id"]
        task = self._tasks[number] = asyncio.create_task(self._run(number, message["kind"], message["params"]))
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def stop(self) -> None:
        """Cancel all requests under way."""
        for task in tuple(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, number: int, kind: str, params: dict[str, Any]) -> None:
        try:
            handler = await self._handler(kind)
            result = await handler(params, lambda event: self._out({"id": number, "event": event}))
            self._out({"id": number, "result": result})
        except (asyncio.CancelledError, Exception) as error:
            self._out({"id": number, "error": msgspec.to_builtins(describe_error(error))})

    async def _handler(self, kind: str) -> Handler:
        async with self._opening:
            if kind not in self._kinds:
                opened: Callable[[], AbstractAsyncContextManager[Handler]]
                opened = importlib.import_module(f"kernel_lsp.lsp.services.{kind}").opened
                self._kinds[kind] = await self._stack.enter_async_context(opened())
            return self._kinds[kind]


async def serve() -> None:
    """Answer requests until standard input ends."""
    loop = asyncio.get_running_loop()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not break the protocol

    def send(message: Mapping[str, Any]) -> None:
        out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        out.flush()

    reader = asyncio.StreamReader(LARGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    async with AsyncExitStack() as stack:
        service = _Service(send, stack)
        serving = asyncio.current_task()
        assert serving is not None
        loop.add_signal_handler(signal.SIGTERM, serving.cancel)
        try:
            while line := await reader.readline():
                service.take(json.loads(line))
        finally:
            await service.stop()


def main() -> None:
    """Run the process; it ends with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(serve())
    except (asyncio.CancelledError, BrokenPipeError):
        sys.exit(1)


if __name__ == "__main__":
    main()
