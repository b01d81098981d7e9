"""The parent's side of one worker: ask, wait with a deadline, kill."""

import asyncio
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Never, TypeVar

import msgspec

from kernel_lsp import errors
from kernel_lsp.runner import messages, protocol
from kernel_lsp.runner.messages import Answer, Request
from kernel_lsp.runner.sessions import kill_session
from kernel_lsp.runner.spans import SpanLog, WorkSpan

_LAST_BYTES = 4096
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception): ")
_LINES_OF_AN_EXCEPTION = 12  # PyTorch's longest has six
_Message = TypeVar("_Message", protocol.Greeting, protocol.Reply)
_KNOWN: dict[str, type[errors.KernelLspError]] = {
    kind.__name__: kind
    for kind in (
        errors.KernelLspError,
        errors.ConfigurationError,
        errors.WorkloadError,
        errors.NotBuiltError,
        errors.SourceError,
        errors.CannotJudgeError,
        errors.RunnerError,
        errors.NoRoomError,
    )
}


class WorkerDied(errors.RunnerError):
    """The worker's process ended before it answered."""


class WorkerTimedOut(errors.RunnerError):
    """The worker did not answer before its deadline and was killed."""


class Worker:
    """A worker process with a folder of its own. It answers one request at a time; others wait for their turn.

    `spans` takes the time of each request, and what the worker reports about its own work.
    """

    def __init__(
        self,
        pid: int,
        connection: socket.socket,
        scratch: Path,
        role: str,
        allowed: frozenset[str] = frozenset(),
        spans: SpanLog | None = None,
    ) -> None:
        self.pid, self.scratch, self.role, self.allowed = pid, scratch, role, allowed
        self.alive = True
        self.protections: tuple[str, ...] = ()
        self._spans = SpanLog() if spans is None else spans
        self._reported = time.monotonic_ns()
        self._connection = connection
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()
        self._at_close: list[Callable[[], None]] = []

    async def ask(self, request: Request[Never, Answer], *, deadline: float) -> Answer:
        """Return the worker's answer to a request within `deadline` seconds of sending.

        Cancelling a request that the worker has begun kills the worker.

        Raises:
            WorkerTimedOut: no answer in time; the worker's process group has been killed.
            WorkerDied: the process ended or broke the protocol; likewise killed.
            WorkerFailure: what the worker was told to run raised.
            KernelLspError: the worker reports something the user can fix.
        """
        async with self._turn:
            return await self._ask(request, deadline)

    async def _ask(self, request: Request[Never, Answer], deadline: float) -> Answer:
        doing = type(request).__name__
        if not self.alive:
            raise WorkerDied(f"the {self.role} process is gone")
        call = protocol.CallFrame(secrets.token_hex(16), doing, messages.encode(request))
        try:
            async with asyncio.timeout(deadline):
                reply = await self._timed(call)
            if reply.nonce == call.nonce and reply.error is None:
                return messages.decode_answer(request, reply.body)
        except TimeoutError:
            self.kill()
            raise WorkerTimedOut(f"the {self.role} process did not finish `{doing}` in {deadline:.1f} s") from None
        except (OSError, EOFError, ValueError, RecursionError) as error:
            words = self._last_words()
            self.kill()
            raise WorkerDied(f"the {self.role} process ended during `{doing}`{words}") from error
        except asyncio.CancelledError:
            # The answer may still be under way, so this worker cannot be used again.
            self.kill()
            raise
        if reply.nonce != call.nonce or reply.error is None:
            self.kill()
            raise WorkerDied(f"the {self.role} process answered `{doing}` without the request's nonce")
        raise protocol.error_of(reply.error, _KNOWN)

    def at_close(self, action: Callable[[], None]) -> None:
        """Run `action` when the worker is killed."""
        self._at_close.append(action)

    def kill(self) -> None:
        """Kill the worker's session and remove its folder. Harmless when it is already dead."""
        if not self.alive:
            return
        self.alive = False
        kill_session(self.pid)
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._connection.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        for action in self._at_close:
            action()

    async def _timed(self, call: protocol.CallFrame) -> protocol.Reply:
        """Return the reply to a call, and note how long it took."""
        began = time.monotonic_ns()
        try:
            reply = await self._exchange(call)
        finally:
            self._spans.add(self.pid, self.role, WorkSpan(call.name, began, time.monotonic_ns()))
        self._spans.report(self.pid, self.role, reply.spans, self._reported)
        self._reported = time.monotonic_ns()
        return reply

    async def _exchange(self, call: protocol.CallFrame) -> protocol.Reply:
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._connection, limit=1 << 20)
            self.protections = (await self._receive(self._streams[0], protocol.Greeting)).protections
        reader, writer = self._streams
        writer.write(protocol.frame(call))
        await writer.drain()
        return await self._receive(reader, protocol.Reply)

    async def _receive(self, reader: asyncio.StreamReader, kind: type[_Message]) -> _Message:
        (length,) = protocol.HEADER.unpack(await reader.readexactly(protocol.HEADER.size))
        if length > protocol.MAX_MESSAGE:
            raise ValueError("the answer is larger than any answer can be")
        return msgspec.msgpack.decode(await reader.readexactly(length), type=kind)

    def _last_words(self) -> str:
        """Return the last words of the worker's output, for the message about its death.

        They are its last line or, where an exception ended it whose text has several lines, the first of these: PyTorch
        adds general advice to what happened.
        """
        try:
            with (self.scratch / "output.log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))  # it may hold gigabytes
                lines = log.read(_LAST_BYTES).decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        if not lines:
            return ""
        raised = (line for line in reversed(lines[-_LINES_OF_AN_EXCEPTION:]) if _EXCEPTION.match(line))
        return f"; its last words: {next(raised, lines[-1])[:300]}"
