"""The fork server: it has imported the heavy libraries, and forks a zygote for each session of this user that asks.

Importing torch takes seconds, and every command would wait for that. Neither this process nor the zygotes, which are
its forks, run anything of a user's, so that nothing of one session is alive in another. It listens at a socket that
`fork_server_client` has made, answers none that is confined as workers are, and ends when nobody has asked for a
while, or when the socket is gone from its place.
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
from kernel_lsp.runner.libraries import harmless, importable
from kernel_lsp.runner.sandbox import is_confined

_LOOK_SECONDS = 5.0
_TALK_SECONDS = 5.0
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


Requests = msgspec.json.Decoder(ZygoteRequest | ImportRequest)


def main() -> None:
    """Entry point of `python -m kernel_lsp.runner.fork_server SOCKET SECONDS MODULE...`; it detaches itself."""
    if os.fork():
        os._exit(0)
    path, seconds, *modules = sys.argv[1:]
    listening = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended zygotes leave no zombies
    place = Path(path)
    own = _identity(place)
    asked = time.monotonic()
    while _identity(place) == own is not None and time.monotonic() - asked < float(seconds):
        if select.select([listening], [], [], min(_LOOK_SECONDS, float(seconds)))[0]:
            with contextlib.suppress(OSError, msgspec.MsgspecError), listening.accept()[0] as connection:
                _answer(connection, listening)
            asked = time.monotonic()
    if _identity(place) == own:
        place.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode that identify a file, None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _answer(connection: socket.socket, listening: socket.socket) -> None:
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
        return
    gc.freeze()  # a garbage collection would touch, and so copy, every imported page in each fork
    pid = os.fork()
    if pid == 0:
        connection.close()
        listening.close()
        _become_zygote(request, descriptors[0])
    os.close(descriptors[0])
    handle = os.pidfd_open(pid)
    try:
        socket.send_fds(connection, [f"{pid}\n".encode()], [handle])
    finally:
        os.close(handle)


def _become_zygote(request: ZygoteRequest, descriptor: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        os.environ.clear()
        os.environ.update(request.environment)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        zygote.serve(socket.socket(fileno=descriptor), request.folder, request.modules)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
