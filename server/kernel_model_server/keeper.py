"""The process that keeps one model server: starts it, announces that it is ready, watches it, and ends it.

    python -m kernel_model_server.keeper FOLDER

FOLDER holds `order.json` (`kernel_model_server.launch.Order`). The keeper holds the lock on `kept` as long as it lives.
Each half second it checks that the server lives, and that no dead judge has left it paused or asleep.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from kernel_lsp.model import gate
from kernel_lsp.model.client import ModelClient
from kernel_lsp.model.endpoint import endpoint_of, transport
from kernel_lsp.model.errors import ModelError
from kernel_lsp.model.servers import ModelServer, write_server
from kernel_lsp.runner.sessions import kill_session
from kernel_model_server.launch import Order

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 15.0
_TRIES = 20
_ABSENT = 10  # checks in a row that a server started by others may leave unanswered


def main() -> None:
    """Entry point."""
    folder = Path(sys.argv[1])
    order = Order.model_validate_json((folder / "order.json").read_text())
    (folder / "order.json").unlink()  # it holds the key
    kept = os.open(folder / "kept", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _locked(kept):
        sys.exit("this server is being kept already")
    os.ftruncate(kept, 0)
    os.write(kept, str(os.getpid()).encode())
    asyncio.run(_keep(order))


def _locked(kept: int) -> bool:
    """Take the lock for good; a process that probes the lock may hold it for a moment."""
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


async def _keep(order: Order) -> None:
    folder, stopping = order.server.folder, asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    process = _started(order) if order.command else None
    server = order.server.model_copy(update={"keeper": os.getpid(), "pid": process.pid if process else None})
    try:
        await _watch(server, process, stopping, order.parent)
    finally:
        (folder / "server.json").unlink(missing_ok=True)
        if process is not None:
            await _end(process)
        if server.uds is not None:
            server.uds.unlink(missing_ok=True)


async def _watch(
    server: ModelServer, process: subprocess.Popen[bytes] | None, stopping: asyncio.Event, parent: int | None
) -> None:
    """Watch until the server has ended, or is told to end, or `parent` has ended."""
    ready, absent = False, 0
    while not stopping.is_set() and parent in (None, os.getppid()):
        if process is not None and process.poll() is not None:
            return
        if not ready and (ready := await _is_ready(server)):
            write_server(server)
        elif ready and process is None:
            absent = 0 if await _is_ready(server) else absent + 1
            if absent > _ABSENT:
                return
        if ready:
            await gate.revive(server.folder)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await stopping.wait()


def _started(order: Order) -> subprocess.Popen[bytes]:
    with (order.server.folder / "log").open("ab") as log:
        return subprocess.Popen(
            order.command,
            cwd=order.server.folder,
            env=order.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_end_with_keeper,
        )


async def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and all its child processes: politely, so that it frees its GPU, then by force."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(process.wait, _GRACE_SECONDS)
    kill_session(process.pid)
    process.wait()


async def _is_ready(server: ModelServer) -> bool:
    """Return True if it is healthy and serves the expected models."""
    endpoint = endpoint_of(server)
    try:
        async with httpx.AsyncClient(base_url=endpoint.url, transport=transport(endpoint), trust_env=False) as http:
            if (await http.get("/health", timeout=5.0)).is_error:
                return False
        async with ModelClient(endpoint) as client:
            return set(server.models) <= set(await client.models())
    except (httpx.TransportError, ModelError):
        return False


def _end_with_keeper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main()
