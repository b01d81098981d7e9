"""Shares a GPU between judge and model servers: while the judge times, no server generates.

A server's folder holds two locks. A judge that holds `gate` exclusively keeps the server quiet while it times. Judges
that hold `bed`, as a shared lock, need the server's memory for longer, and the server sleeps. The system frees the
locks of a dead process. A mark beside each lock records what was done under it: a mark whose lock is free was left by a
dead judge, and the server's keeper (within a second) or a client (with its next request) undoes it (`revive`).
"""

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_lsp.model.servers import ModelServer, running

_POLL_SECONDS = 0.02
_PAUSE_SECONDS = 30.0
_SLEEP_SECONDS = 600.0  # the first time, weights are copied to host memory: a minute for 61 GiB
_DRAIN_SECONDS = 600.0
_TRIES = 10


class Quiet(StrEnum):
    """State that keeps a server from using its GPU."""

    PAUSED = "paused"
    IDLE = "idle"
    ASLEEP = "asleep"
    GONE = "gone"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Quieted:
    """The state of a server while the judge times.

    Attributes:
        server: the server.
        how: the reason that it is quiet; BUSY if it could not be stopped.
        since: beginning of that state, as `time.time()`.
    """

    server: ModelServer
    how: Quiet
    since: float


@asynccontextmanager
async def quiet(gpu: str) -> AsyncGenerator[tuple[Quieted, ...]]:
    """Keep every model server of this user off the GPU with this UUID while the context is open.

    A server that supports pausing freezes its answers and continues them afterwards; otherwise their end is waited for.
    No failure of a server stops the judge.
    """
    async with contextlib.AsyncExitStack() as stack:
        found: list[Quieted] = []
        for server in running():
            if gpu in server.gpus:
                with contextlib.suppress(FileNotFoundError):  # its folder was deleted meanwhile
                    found.append(await stack.enter_async_context(quieted(server)))
        yield tuple(found)


@asynccontextmanager
async def asleep(gpu: str, *, wanted: int, free: int) -> AsyncGenerator[tuple[ModelServer, ...]]:
    """Put the servers on a GPU to sleep if it has less than `wanted` bytes free; yields the sleeping servers.

    They wake when the last user of their memory is done.
    """
    async with contextlib.AsyncExitStack() as stack:
        servers = [server for server in running() if gpu in server.gpus and server.sleeps] if free < wanted else []
        for server in servers:
            await stack.enter_async_context(_asleep(server))
        yield tuple(servers)


@asynccontextmanager
async def generating(folder: Path | None) -> AsyncGenerator[None]:
    """Hold a shared lock while an answer is streamed, so that the judge can wait for its end.

    Needed only for servers that cannot be paused; `folder` is None for a server that no judge waits for.
    """
    if folder is None or (server := _of(folder)) is None or server.pauses:
        yield
        return
    async with contextlib.AsyncExitStack() as stack:
        async with _locked(folder / "turn", fcntl.LOCK_EX):  # so that a waiting judge comes before the next answer
            await stack.enter_async_context(_locked(folder / "gate", fcntl.LOCK_SH))
        yield


def is_held(folder: Path | None) -> bool:
    """Return True if a live judge keeps the server quiet or asleep now."""
    return folder is not None and any(
        (folder / mark).exists() and not _free(folder / lock) for lock, mark in (("gate", "paused"), ("bed", "asleep"))
    )


async def revive(folder: Path | None) -> bool:
    """Undo the marks of a dead judge: resume a paused server, wake a sleeping one; return True if there was one."""
    if folder is None or (server := _of(folder)) is None:
        return False
    done = False
    for lock, mark, path in (("gate", "paused", "/resume"), ("bed", "asleep", "/wake_up")):
        if not (server.folder / mark).exists():
            continue
        with contextlib.suppress(BlockingIOError), _lock_now(server.folder / lock):
            if (server.folder / mark).exists() and await _post(server, path, _SLEEP_SECONDS):
                (server.folder / mark).unlink(missing_ok=True)
                done = True
    return done


@asynccontextmanager
async def quieted(server: ModelServer) -> AsyncGenerator[Quieted]:
    """Keep one server quiet; as `quiet`."""
    async with _locked(server.folder / "turn", fcntl.LOCK_EX), _locked(server.folder / "gate", fcntl.LOCK_EX):
        mark = server.folder / "paused"
        if (server.folder / "asleep").exists():  # resuming it now would run it without its weights
            yield Quieted(server, Quiet.ASLEEP, time.time())
        elif not server.pauses:
            how = await _drained(server)
            yield Quieted(server, how, time.time())
        else:
            mark.touch()
            try:
                paused = await _post(server, "/pause?mode=keep&clear_cache=false", _PAUSE_SECONDS)
                how = Quiet.PAUSED if paused else Quiet.GONE if _of(server.folder) is None else Quiet.BUSY
                yield Quieted(server, how, time.time())
            finally:
                if await _post(server, "/resume", _PAUSE_SECONDS):
                    mark.unlink(missing_ok=True)


@asynccontextmanager
async def _asleep(server: ModelServer) -> AsyncGenerator[None]:
    mark, bed = server.folder / "asleep", server.folder / "bed"
    try:
        async with _locked(bed, fcntl.LOCK_SH):
            mark.touch()
            await _post(server, "/sleep?level=1&mode=keep", _SLEEP_SECONDS)
            yield
    finally:
        for _ in range(_TRIES):  # another process may be probing the lock
            if await revive(server.folder):
                break
            await asyncio.sleep(_POLL_SECONDS)


async def _drained(server: ModelServer) -> Quiet:
    """Wait until no request is running; those of this program have ended, because the gate is ours."""
    until = time.monotonic() + _DRAIN_SECONDS
    while (requests := await requests_running(server)) and time.monotonic() < until:
        await asyncio.sleep(_POLL_SECONDS)
    return Quiet.GONE if requests is None else Quiet.BUSY if requests else Quiet.IDLE


async def requests_running(server: ModelServer) -> float | None:
    """Return the number of requests that the server is working on; None if it does not answer."""
    text = await _get(server, "/metrics")
    if text is None:
        return None
    counts = (line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("vllm:num_requests_running"))
    return sum(float(count) for count in counts)


async def _post(server: ModelServer, path: str, seconds: float) -> bool:
    return await _request(server, "POST", path, seconds) is not None


async def _get(server: ModelServer, path: str) -> str | None:
    return await _request(server, "GET", path, _PAUSE_SECONDS)


async def _request(server: ModelServer, method: str, path: str, seconds: float) -> str | None:
    """Return the body of the server's answer, which may be empty; None if the request fails."""
    import httpx  # takes 0.2 s, and most judgements have no model server beside them

    from kernel_lsp.model.endpoint import transport_over

    headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}
    way = transport_over(server.uds)
    base = server.url or "http://localhost"
    async with httpx.AsyncClient(base_url=base, transport=way, headers=headers, trust_env=False) as http:
        try:
            response = await http.request(method, path, timeout=seconds)
        except httpx.TransportError:
            return None
        return None if response.is_error else response.text


def _of(folder: Path) -> ModelServer | None:
    return next((server for server in running() if server.folder == folder), None)


@asynccontextmanager
async def _locked(path: Path, kind: int) -> AsyncGenerator[None]:
    """Hold a lock as soon as it is free."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _lock_now(path: Path) -> Generator[None]:
    """Hold a lock exclusively; raises BlockingIOError if another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _free(path: Path) -> bool:
    try:
        with _lock_now(path):
            return True
    except BlockingIOError:
        return False
