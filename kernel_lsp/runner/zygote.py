"""The zygote: a process that has imported the heavy libraries once, and forks a worker on request.

Importing torch takes seconds, a fork takes milliseconds; so a fresh worker for every candidate costs little. The
zygote itself never touches CUDA (a context does not survive a fork) and never runs a user's code.

It reads requests from the socket that is its standard input: one JSON line with the worker's role and limits,
accompanied by the worker's end of its private socket. The role's module, and before it what a request names as `first`
and `libraries`, are imported before the fork, for all later workers too. It answers with the worker's process id, or,
before its first worker, with the library that makes it useless, and ends. When its own socket closes, its parent is
gone: it kills every worker's process group, removes what they wrote and exits. While it imports, which takes seconds
and reads no socket, the system tells it of its parent's death instead.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import NoReturn, cast

import msgspec

from kernel_lsp import policy
from kernel_lsp.runner import protocol, watch
from kernel_lsp.runner.libraries import Before, harmless, importable
from kernel_lsp.runner.sandbox import Confinement, confine
from kernel_lsp.runner.sessions import kill_session

SPOILED = "spoiled by "
"""Begins the answer of a zygote that a library made useless, whose name follows."""
_PR_SET_PDEATHSIG = 1
_LOG = "output.log"
_PATIENCE_SECONDS = 3.0


class ForkRequest(msgspec.Struct, frozen=True):
    """A worker to fork.

    Attributes:
        module: of its role.
        scratch: the folder that it lives in.
        first: a module that is imported before that one; None for none.
        libraries: modules of installed packages that workers before this one needed; imported before both if possible.
        environment: all of its environment.
        confinement: what it is allowed.
    """

    module: str
    scratch: str
    first: str | None
    libraries: tuple[str, ...]
    environment: dict[str, str]
    confinement: Confinement


def main() -> None:
    """Entry point of `python -m kernel_lsp.runner.zygote FOLDER MODULE...`."""
    gc.disable()  # a quarter of the time of imports; what they leave behind is little
    folder, *modules = sys.argv[1:]
    _hear_of_parents_death(signal.SIGTERM)
    serve(socket.socket(fileno=os.dup(0)), folder, modules)


def serve(control: socket.socket, folder: str, modules: Sequence[str] = ()) -> None:
    """Import modules, report that, and fork workers until the parent's side of `control` closes; then clean up.

    Args:
        control: our side of the socket.
        folder: what all workers' folders lie in.
        modules: those that are not imported yet.
    """
    os.chdir(folder)
    children: dict[int, Path] = {}
    end = _End(control, lambda: _clean_up(children, Path(folder)))
    signal.signal(signal.SIGTERM, end)
    try:
        if _is_alone(control):  # the parent died before its death signal was set up
            return
        for name in modules:
            end.importing(name)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: _reap(children))
        control.sendall(b"ready\n")
        before = Before.now()
        most_memory = watch.most_memory()
        while True:
            if not select.select([control], [], [], policy.WATCH_SECONDS if children else None)[0]:
                _look_after(children, most_memory)
                continue
            data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
            if not data:
                break
            request = msgspec.json.decode(data, type=ForkRequest)
            libraries = importable(request.libraries)
            spoiler = end.import_libraries(harmless(libraries) if children else libraries, before)
            if spoiler is not None and not children:
                control.sendall(f"{SPOILED}{spoiler}\n".encode())
                break
            for name in filter(None, (request.first, request.module)):
                end.importing(name)  # does nothing the second time
            gc.freeze()  # a garbage collection would touch, and so copy, every imported page in each worker
            pid = os.fork()
            if pid == 0:
                control.close()
                _become_worker(request, descriptors[0])
            os.close(descriptors[0])
            children[pid] = Path(request.scratch)
            control.sendall(f"{pid}\n".encode())
    finally:
        _clean_up(children, Path(folder))


class _End:
    """The handler of SIGTERM: during an import it cleans up and exits; else the closed socket ends the zygote.

    It does not raise, for some callers within an import ignore exceptions, and the import would go on for seconds.
    """

    def __init__(self, control: socket.socket, clean_up: Callable[[], None]) -> None:
        self._control, self._clean_up, self._is_importing = control, clean_up, False

    def importing(self, module: str) -> None:
        """Import a module; the process ends if SIGTERM comes meanwhile."""
        self._is_importing = True
        try:
            importlib.import_module(module)
        finally:
            self._is_importing = False

    def import_libraries(self, names: Iterable[str], before: Before) -> str | None:
        """Import modules until one leaves this process in a state that forks cannot use; return its name, or None."""
        for name in names:
            if name in sys.modules:
                continue
            with contextlib.suppress(Exception):  # who needs it says what is wrong with it
                self.importing(name)
            if before.spoiled:
                return name
        return None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        if self._is_importing:
            try:
                self._clean_up()
            finally:
                os._exit(1)
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RD)


def _is_alone(control: socket.socket) -> bool:
    try:
        return not control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


def _become_worker(request: ForkRequest, descriptor: int) -> NoReturn:
    """Become the forked worker: own session, folder and environment, confined; then run the role's loop."""
    status = 1
    try:
        os.setsid()
        _hear_of_parents_death(signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        scratch = Path(request.scratch)
        os.chdir(scratch)
        _redirect_output(scratch / _LOG)
        os.environ.clear()
        os.environ.update(request.environment)
        gc.enable()
        tempfile.tempdir = None  # an import may have set the zygote's folder
        role = sys.modules[request.module]
        protections = confine(request.confinement)
        connection = socket.socket(fileno=descriptor)  # the parent notices first that it is closed
        protocol.serve(connection, role.methods, protections)
        status = 0
    except BaseException:
        traceback.print_exc()  # the parent reads it from the log
    finally:
        os._exit(status)


def _redirect_output(path: Path) -> None:
    """Take standard input from /dev/null, and send output to a log of the worker's own, whose size RLIMIT_FSIZE limits.

    Output is unbuffered: text still in a buffer when a process is killed would be missing from the log.
    """
    cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


def _look_after(children: dict[int, Path], most_memory: int) -> None:
    """End sessions that use too much memory, with the reason as the last line of their log."""
    for pid, scratch in tuple(children.items()):
        log = scratch / _LOG
        watch.cap_output(log)
        if (reason := watch.excess(watch.look(pid, scratch, most_memory), most_memory)) is not None:
            with contextlib.suppress(OSError):  # first the log: the parent sees the end at once
                log.write_text(f"stopped: {reason}\n", encoding="utf-8")
            kill_session(pid)


def _reap(children: dict[int, Path]) -> None:
    """Forget workers that have ended, and end the processes that they started."""
    for pid in tuple(children):
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            kill_session(pid)  # before the wait, which frees the number for another process
            os.waitpid(pid, 0)
        children.pop(pid, None)


def _clean_up(children: Iterable[int], folder: Path) -> None:
    """Kill all workers and remove what they wrote."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in tuple(children):
        kill_session(pid)
    for pid in tuple(children):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)  # until it has ended it may still write to its folder
    _clear_away(folder)
    with contextlib.suppress(OSError):  # the last zygote to end finds the pool's folder empty
        folder.parent.rmdir()


def _clear_away(folder: Path) -> None:
    """Remove a folder with all its contents, again and again while processes just killed still write there."""
    end = time.monotonic() + _PATIENCE_SECONDS
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)


def _hear_of_parents_death(number: signal.Signals) -> None:
    """Ask Linux to send this signal when the parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    main()
