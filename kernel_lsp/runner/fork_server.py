"""The fork server: it has imported the heavy libraries, and forks a zygote for each session of this user that asks.

Importing torch takes seconds, and every command would wait for that. Neither this process nor the zygotes, which are
its forks, run anything of a user's, so that nothing of one session is alive in another. It listens at a socket that
`fork_server_client` has made, answers none that is confined as workers are, and ends when nobody has asked for a
while, when the socket is gone from its place, or when it is asked after a file that it has imported has changed.

Other installed packages than the few that many projects use are never imported here: for each set of them that files
import, a fork of this process becomes a server of its own, which only sessions of files that import the same set ask.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec

from kernel_lsp.runner import zygote
from kernel_lsp.runner.libraries import Before, harmless, importable
from kernel_lsp.runner.sandbox import is_confined

_LOOK_SECONDS = 5.0
_TALK_SECONDS = 5.0
_MOST_SERVERS = 4  # with libraries beside one server; each takes 0.1 to 0.3 GB
_CREDENTIALS = "3i"  # process, user and group, as Linux's SO_PEERCRED has them


class ZygoteRequest(msgspec.Struct, frozen=True, tag=True):
    """A zygote to fork; its socket comes with the request. The answer is its process id as text, and a pidfd.

    Attributes:
        folder: what all its workers' folders lie in.
        environment: all of its environment.
        modules: what it imports itself, for that depends on the environment.
    """

    folder: str
    environment: dict[str, str]
    modules: tuple[str, ...]


class ImportRequest(msgspec.Struct, frozen=True, tag=True):
    """Modules of this program, and of installed packages as far as they can be, to import for later zygotes.

    It is not answered.
    """

    modules: tuple[str, ...]
    libraries: tuple[str, ...] = ()


class ServerRequest(msgspec.Struct, frozen=True, tag=True):
    """A server to fork for files that import certain libraries; its listening socket comes with the request.

    It is not answered: a server that libraries leave in a state that its forks cannot use ends.

    Attributes:
        path: of its socket.
        environment: all of its environment.
        libraries: modules of installed packages, which it imports.
    """

    path: str
    environment: dict[str, str]
    libraries: tuple[str, ...]


Requests = msgspec.json.Decoder(ZygoteRequest | ImportRequest | ServerRequest)


def main() -> None:
    """Entry point of `python -m kernel_lsp.runner.fork_server SOCKET SECONDS MODULE...`; it detaches itself."""
    if os.fork():
        os._exit(0)
    gc.disable()  # a quarter of the time of imports; what they leave behind is little
    began = time.time_ns()
    path, seconds, *modules = sys.argv[1:]
    listening = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended zygotes leave no zombies
    _Server(listening, Path(path), float(seconds), began).serve()


class _Server:
    """Listens at a socket.

    Args:
        listening: the socket.
        place: its path.
        seconds: how long it listens after it was last asked.
        began: the time, in ns since 1970, before anything that its forks have was imported.
    """

    def __init__(self, listening: socket.socket, place: Path, seconds: float, began: int) -> None:
        self._listening, self._place, self._seconds, self._began = listening, place, seconds, began
        self._own = _identity(place)
        self._beside: list[int] = []  # pidfds of servers with libraries, oldest first

    def serve(self) -> None:
        """Answer until nobody has asked for a while, or the socket is gone from its place."""
        asked = time.monotonic()
        while self._is_in_place and time.monotonic() - asked < self._seconds:
            if select.select([self._listening], [], [], min(_LOOK_SECONDS, self._seconds))[0]:
                with contextlib.suppress(OSError, msgspec.MsgspecError), self._listening.accept()[0] as connection:
                    self._answer(connection)
                asked = time.monotonic()
        self._leave()

    @property
    def _is_in_place(self) -> bool:
        return self._own is not None and _identity(self._place) == self._own

    def _leave(self) -> None:
        if self._is_in_place:
            self._place.unlink(missing_ok=True)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_TALK_SECONDS)
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS))
        process, user, _ = struct.unpack(_CREDENTIALS, peer)
        if user != os.getuid() or is_confined(process):  # workers are confined, zygotes are not
            return
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 1)
        request = Requests.decode(data)
        if isinstance(request, ImportRequest):
            for library in harmless(importable(request.libraries)):
                with contextlib.suppress(Exception):  # who needs it says what is wrong with it
                    importlib.import_module(library)
            for module in request.modules:
                importlib.import_module(module)
        elif _changed_since(self._began):
            self._leave()  # another takes its place
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            self._fork(request, descriptors[0], connection)

    def _fork(self, request: ZygoteRequest | ServerRequest, descriptor: int, connection: socket.socket) -> None:
        """Fork a process that gets the descriptor; answer with it if it is a zygote."""
        gc.freeze()  # a garbage collection would touch, and so copy, every imported page in each fork
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._listening.close()
            for handle in self._beside:
                os.close(handle)
            _become(request, socket.socket(fileno=descriptor), self._seconds)
        os.close(descriptor)
        handle = os.pidfd_open(pid)
        if isinstance(request, ServerRequest):
            self._beside.append(handle)
            while len(self._beside) > _MOST_SERVERS:
                _end(self._beside.pop(0))
            return
        try:
            socket.send_fds(connection, [f"{pid}\n".encode()], [handle])
        finally:
            os.close(handle)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode that identify a file, None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _changed_since(began: int) -> bool:
    """Return True if the file of an imported module was written or replaced after a time in ns since 1970."""
    files = [getattr(module, "__dict__", {}).get("__file__") for module in tuple(sys.modules.values())]
    return any(_changed(file, began) for file in files)


def _changed(file: object, began: int) -> bool:
    if not isinstance(file, str) or not file.startswith("/"):  # as of modules that are made by hand
        return False
    try:
        # Thousands of files: quicker than pathlib. Replacing a file changes this time, too.
        return os.stat(file).st_ctime_ns > began  # noqa: PTH116
    except OSError:
        return False


def _end(handle: int) -> None:
    """Kill the process of a pidfd, which is closed; the zygotes that it has forked live on."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)


def _become(request: ZygoteRequest | ServerRequest, given: socket.socket, seconds: float) -> NoReturn:
    """Become the forked zygote, or the forked server, with the socket that came with the request."""
    status = 1
    try:
        os.setsid()
        os.environ.clear()
        os.environ.update(request.environment)
        if isinstance(request, ServerRequest):
            _serve_with(request, given, seconds)
        else:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            zygote.serve(given, request.folder, request.modules)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve_with(request: ServerRequest, listening: socket.socket, seconds: float) -> None:
    """Import libraries and listen, unless forks could not use what an import has begun."""
    began, before, place = time.time_ns(), Before.now(), Path(request.path)
    for library in importable(request.libraries):
        with contextlib.suppress(Exception):  # who needs it says what is wrong with it
            importlib.import_module(library)
        if before.spoiled:
            place.unlink(missing_ok=True)
            return
    _Server(listening, place, seconds, began).serve()


if __name__ == "__main__":
    main()
