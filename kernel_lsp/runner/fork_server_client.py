"""Zygotes from a fork server that other sessions of this user have left running; see `fork_server`.

There is one for each set of modules, environment, Python and state of this program's own files; and for each set of
installed libraries that files import besides, one that it forks. A failure is never an error: the zygote is then
started without one.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import signal
import site
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from kernel_lsp.config.runtime_folder import private_folder
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.runner.fork_server import ImportRequest, ServerRequest, ZygoteRequest
from kernel_lsp.runner.sandbox import is_confined

_ANSWER_SECONDS = 120.0  # for it may still be importing
_BACKLOG = 64
_TRIES = 2  # a server that finds that its files have changed ends when it is asked


class ForkedZygote:
    """A zygote that the fork server forked, so that it is no child of this process.

    It has those methods of `asyncio.subprocess.Process` that `OpenZygote` uses.
    """

    def __init__(self, pid: int, handle: int) -> None:
        """Take its process id, and a pidfd, which is closed when the zygote has ended."""
        self.pid, self._handle = pid, handle
        self._end: asyncio.Future[None] | None = None  # of all who wait: a loop has one reader for each descriptor

    def kill(self) -> None:
        """Kill it.

        Raises:
            ProcessLookupError: it has ended.
        """
        if self._end is not None and self._end.done():
            raise ProcessLookupError
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def wait(self) -> None:
        """Wait for its end."""
        if self._end is None:
            loop = asyncio.get_running_loop()
            self._end = loop.create_future()
            loop.add_reader(self._handle, self._note_end, loop, self._end)
        await asyncio.shield(self._end)

    def _note_end(self, loop: asyncio.AbstractEventLoop, end: "asyncio.Future[None]") -> None:
        loop.remove_reader(self._handle)
        os.close(self._handle)
        end.set_result(None)


class ForkServer:
    """The fork server for these modules and environment, started when first needed.

    Args:
        modules: what its zygotes have imported.
        environment: what it imports them under.
        minutes: how long it stays after it was last asked.
        libraries: modules of installed packages that it imports after those, in this order.
        base: the server without libraries that forks it.
    """

    def __init__(
        self,
        modules: Sequence[str],
        environment: Mapping[str, str],
        minutes: float,
        libraries: Sequence[str] = (),
        base: "ForkServer | None" = None,
    ) -> None:
        self._modules, self._environment, self._seconds = tuple(modules), dict(environment), minutes * 60
        self._libraries, self._base = tuple(libraries), base

    def importing(self, libraries: Sequence[str], environment: Mapping[str, str]) -> "ForkServer":
        """Return the server that this one forks for files that import these libraries."""
        return ForkServer(self._modules, environment, self._seconds / 60, libraries, self)

    @property
    def runs(self) -> bool:
        """True if somebody has started it."""
        with contextlib.suppress(OSError, ConfigurationError):
            if (connection := self._connect(self._path)) is not None:
                connection.close()
                return True
        return False

    def begin(self) -> None:
        """Start it, unless it runs, without waiting for its imports."""
        if is_confined(os.getpid()):
            return
        with contextlib.suppress(OSError, ConfigurationError, subprocess.SubprocessError), _locked(self._path):
            if not self.runs:
                self._start(self._path).close()

    async def zygote(self, request: ZygoteRequest, control: socket.socket) -> ForkedZygote | None:
        """Return a zygote that reads its side of the socket; None if no server answers."""
        return await asyncio.to_thread(self._zygote, request, control)

    async def should_import(self, modules: Sequence[str], libraries: Sequence[str] = ()) -> None:
        """Ask the server to import modules of this program and of installed packages for later zygotes."""
        with contextlib.suppress(OSError, ConfigurationError):
            await asyncio.to_thread(self._say, ImportRequest(tuple(modules), tuple(libraries)))

    def _zygote(self, request: ZygoteRequest, control: socket.socket) -> ForkedZygote | None:
        if is_confined(os.getpid()):  # as in some containers: the server would not answer
            return None
        with contextlib.suppress(OSError, ConfigurationError):
            if self._is_unfit:
                return None
            for _ in range(_TRIES):
                with _locked(self._path):
                    running = self._connect(self._path)
                    connection = running or self._start(self._path)
                if (zygote := _asked(connection, request, control)) is not None:
                    return zygote
                if running is None:
                    break
            if self._base is not None:
                self._unfit.touch()
        return None

    @property
    def _unfit(self) -> Path:
        return self._path.with_suffix(".unfit")

    @property
    def _is_unfit(self) -> bool:
        """True if this server has lately ended for what its libraries do when they are imported."""
        return self._unfit.exists() and time.time() - self._unfit.stat().st_mtime < self._seconds

    def _say(self, request: ImportRequest) -> None:
        connection = self._connect(self._path)
        if connection is not None:
            with connection:
                connection.sendall(msgspec.json.encode(request))

    def _connect(self, path: Path) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):  # no server runs
            connection.close()
            return None
        return connection

    def _start(self, path: Path) -> socket.socket:
        """Start a server at `path`; return a connection, which is answered when all imports are done."""
        draft = path.with_suffix(f".{os.getpid()}")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(draft))
            listening.listen(_BACKLOG)
            draft.replace(path)
            if self._base is None:
                self._run(path, listening)
            else:
                request = ServerRequest(str(path), self._environment, self._libraries)
                with self._base._connect(self._base._path) or self._base._start(self._base._path) as base:
                    socket.send_fds(base, [msgspec.json.encode(request)], [listening.fileno()])
        connection = self._connect(path)
        if connection is None:
            raise ConnectionRefusedError
        return connection

    def _run(self, path: Path, listening: socket.socket) -> None:
        """Run the server's program, which goes on by itself."""
        command = [sys.executable, "-P", "-m", "kernel_lsp.runner.fork_server", str(path), str(self._seconds)]
        subprocess.run(
            [*command, *self._modules],
            stdin=listening.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            cwd="/",
            start_new_session=True,
            check=True,
        )

    @cached_property
    def _path(self) -> Path:
        """Return the path of the socket; its name is a hash of all that a zygote shares with its client."""
        own = [sys.executable, self._modules, self._libraries, sorted(self._environment.items()), self._seconds]
        return private_folder("warm") / hashlib.sha256(msgspec.json.encode([*own, *_surroundings()])).hexdigest()[:16]


def _asked(connection: socket.socket, request: ZygoteRequest, control: socket.socket) -> ForkedZygote | None:
    """Return the zygote that a server answers with; None if it ends instead."""
    with connection, contextlib.suppress(ConnectionError):
        connection.settimeout(_ANSWER_SECONDS)
        socket.send_fds(connection, [msgspec.json.encode(request)], [control.fileno()])
        data, handles, _, _ = socket.recv_fds(connection, 64, 1)
        if handles:
            return ForkedZygote(int(data), handles[0])
    return None


def _surroundings() -> Generator[object]:
    """Yield what a process inherits, and the state of all files that it may have imported."""
    yield os.getpriority(os.PRIO_PROCESS, 0)
    yield sorted(os.sched_getaffinity(0))
    yield Path("/proc/self/cgroup").read_text()
    for folder in map(Path, site.getsitepackages()):
        if folder.exists():
            yield from _installed(folder)
    yield from _own_files(str(Path(__file__).parents[1]))


def _own_files(folder: str) -> Generator[object]:
    """Yield the state of each Python file below a folder; there are hundreds, and each session asks several times."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.name, status.st_size, status.st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _own_files(entry.path)


def _installed(folder: Path) -> Generator[object]:
    """Yield what a folder of packages holds, and when each was installed; not what imports leave behind there."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.endswith(".dist-info"):
                yield entry.name, entry.stat().st_mtime_ns
            elif entry.name != "__pycache__":
                yield entry.name


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Keep other processes from starting a server during the block."""
    with path.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
