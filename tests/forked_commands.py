"""Commands of Kernel LSP for tests, forked from one process that has imported their modules.

To import them takes longer than most tests do. A command is still a process of its own, with the environment, folder,
arguments and standard streams that it is given, and the services of a server are its children. What happens before
the first line of `main`, what is imported when, and what a signal does to it, are for tests of the real command.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from kernel_lsp.cli import console
from kernel_lsp.cli import main as command_line
from kernel_lsp.lsp import service

ROOT = Path(__file__).parents[1]
_PRELOADED = (ROOT / "kernel_lsp/cli", ROOT / "kernel_lsp/lsp")
_SERVICE = ["-P", "-m", "kernel_lsp.lsp.service"]
_ORIGIN = "from tests.forked_commands import main; main()"
_RELAY = """
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as to:
    to.connect(sys.argv[1])
    to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))])
    to.sendall(json.dumps([os.environ.copy(), os.getcwd(), sys.argv[2:]]).encode() + b"\\n")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os._exit(int(to.recv(8) or 70))
"""


def forked(*arguments: str) -> list[str]:
    """Return a command line that does what `kernel-lsp` does with these arguments.

    Its process relays: it gives its streams to the command, ends as it does, and ends it.
    """
    path, _ = origin()
    return _relay(path, *arguments)


def _relay(path: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _RELAY, path, *arguments]


@cache
def origin() -> tuple[str, subprocess.Popen[bytes]]:
    """Start the process that is forked; return the path of its socket, and it: it ends with its standard input."""
    path = str(Path(tempfile.mkdtemp(prefix="fork-", dir=os.environ["XDG_RUNTIME_DIR"])) / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _ORIGIN, path, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd="/",
        )
    return path, process


async def _serve(path: str, listening: socket.socket) -> None:
    """Answer relays until standard input ends, as it does with the process of the tests."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(0, over.set)
    answering = asyncio.create_task(_accept(path, listening))
    await over.wait()
    answering.cancel()


async def _accept(path: str, listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    running: set[asyncio.Task[None]] = set()
    while True:
        connection, _ = await loop.sock_accept(listening)
        connection.setblocking(True)
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        task = asyncio.create_task(_run(path, connection, streams))
        running.add(task)
        task.add_done_callback(running.discard)


async def _run(path: str, connection: socket.socket, streams: Sequence[int]) -> None:
    """Fork one command, and report its exit code to its relay; end it if the relay is ended."""
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=1 << 20)
    try:
        asked = await reader.readline()
        if not asked.endswith(b"\n"):  # the relay was ended before it had asked
            writer.close()
            return
        environment, folder, arguments = json.loads(asked)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            **dict(zip(("stdin", "stdout", "stderr"), streams, strict=True)),
            cwd=folder,
            start_new_session=arguments == _SERVICE,
            preexec_fn=partial(_become, path, environment, arguments),  # it does not return: nothing is executed
        )
    finally:
        for stream in streams:  # whoever reads from the command waits until all who may write have closed them
            os.close(stream)
    number = signal.SIGKILL if arguments == _SERVICE else signal.SIGTERM
    relay = asyncio.ensure_future(reader.read())
    relay.add_done_callback(lambda _: process.send_signal(number) if process.returncode is None else None)
    code = await process.wait()
    with contextlib.suppress(OSError):
        writer.write(b"%d" % (code if code >= 0 else 128 - code))
        await writer.drain()
    writer.close()
    relay.cancel()


def _become(path: str, environment: Mapping[str, str], arguments: list[str]) -> NoReturn:
    """Make a process of its own of a fork: nothing open, nothing handled, no loop; then run the command and exit."""
    code = 1
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python starts; what is to be executed begins otherwise
        asyncio.set_event_loop_policy(None)
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        os.environ.clear()
        os.environ.update(environment)
        paths = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [one for one in paths if one and one not in sys.path]
        sys.argv = ["-c", *arguments]
        for made, stderr in ((console.out, False), (console.err, True)):  # for the width of this environment
            vars(made).update(vars(console._console(stderr=stderr)))
        if arguments == _SERVICE:
            service.main()
        else:
            _command(path)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _command(path: str) -> None:
    """Run the command line, whose services are forked as it is."""
    execute = asyncio.create_subprocess_exec

    async def start(program: str, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
        relayed = _relay(path, *_SERVICE) if list(arguments) == _SERVICE else [program, *arguments]
        return await execute(*relayed, **options)

    with patch("asyncio.create_subprocess_exec", start):
        command_line.main()


def main() -> None:
    """Import what commands import, and serve."""
    for path in (path for folder in _PRELOADED for path in sorted(folder.rglob("*.py"))):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    gc.freeze()  # a collection in a fork would touch, and so copy, every page
    if sys.version_info < (3, 12):  # whose watcher has threads, beside which a fork may not be made
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    _, path, number = sys.argv
    asyncio.run(_serve(path, socket.socket(fileno=int(number))))
