"""The server's side of a `service` process: start it, send requests, kill it with all its children."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernel_lsp import errors
from kernel_lsp.errors import RunnerError

_LARGEST_LINE = 256 << 20
_GRACE = 2.0  # seconds that it has to end by itself
_KNOWN: dict[str, type[errors.KernelLspError]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.KernelLspError)
}


class ServiceFailure(Exception):  # noqa: N818 - it is the work that failed
    """An unexpected error in the service; a defect, with its traceback in the log."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class ServiceGoneError(RunnerError):
    """The process died before it answered, or had died when it was asked."""


class Service:
    """A service process, started at the first request and again after it died.

    `environment` is added to the server's own. The process leads a process group and session of its own.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(environment or {})
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Callable[[Any], None]]] = {}

    @property
    def pid(self) -> int | None:
        """Return the process id while the process is alive, else None."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def ask(self, kind: str, params: Mapping[str, Any], on_event: Callable[[Any], None] = lambda _: None) -> Any:
        """Return the result of a request; cancelling this task cancels the request in the process.

        Args:
            kind: a module of `kernel_lsp.lsp.services`.
            params: JSON.
            on_event: hears each event that the work emits.

        Raises:
            RunnerError: the process cannot be started.
            ServiceGoneError: it died meanwhile.
            KernelLspError: what the work raised for the user to fix.
            ServiceFailure: any other error in it.
        """
        process = await self._started()
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future, on_event
        try:
            await self._send(process, {"id": number, "kind": kind, "params": params})
            return await future
        except asyncio.CancelledError:
            with contextlib.suppress(RunnerError):
                await self._send(process, {"cancel": number})
            raise
        finally:
            self._waiting.pop(number, None)

    async def begin(self, kind: str, params: Mapping[str, Any]) -> None:
        """Send a request that nobody waits for; what fails in it is told to whoever asks for the same.

        Raises:
            RunnerError: the process cannot be started, or died meanwhile.
        """
        await self._send(await self._started(), {"id": next(self._numbers), "kind": kind, "params": params})

    async def close(self) -> None:
        """End the process: close its input, and kill its group if it does not end soon."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_GRACE):
                await process.wait()
        except TimeoutError:
            self.kill()

    def kill(self) -> None:
        """Kill the process group immediately."""
        if (pid := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    async def _started(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await self._start()
                self._reading = asyncio.create_task(self._read(self._process))
            return self._process

    async def _start(self) -> asyncio.subprocess.Process:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "kernel_lsp.lsp.service"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | self._environment | {"PYTHONPATH": path},
                start_new_session=True,
                limit=_LARGEST_LINE,
            )
        except OSError as error:
            fix = "Close some programs and try again."
            raise RunnerError(f"No process can be started: {error.strerror}.", fix=fix) from error

    async def _send(self, process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await process.stdin.drain()
        except (OSError, RuntimeError):
            raise _gone() from None

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._take(json.loads(line))
        finally:
            await process.wait()
            for future, _ in self._waiting.values():
                if not future.done():
                    future.set_exception(_gone())

    def _take(self, message: dict[str, Any]) -> None:
        future, on_event = self._waiting.get(message["id"], (None, None))
        if future is None or on_event is None or future.done():
            return
        if "event" in message:
            on_event(message["event"])
        elif "error" in message:
            future.set_exception(_raised(message["error"]))
        else:
            future.set_result(message["result"])


def _raised(described: Mapping[str, Any]) -> Exception:
    kind = _KNOWN.get(described["kind"])
    if kind is None:
        print(described.get("trace", ""), file=sys.stderr)
        return ServiceFailure(described["kind"], described["message"])
    path = described.get("path")
    return kind(described["message"], Path(path) if path else None, described.get("line"), described.get("fix"))


def _gone() -> ServiceGoneError:
    return ServiceGoneError("The process that did this work is gone.", fix="Try again; the log may say why it ended.")
