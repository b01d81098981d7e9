"""Compiles the kernels that a Triton file launches side by side, each in a process of its own, into Triton's cache.

Worker processes only. Triton compiles at the launch, one kernel after another. Therefore a forked process, the leader,
runs through the launches once without executing them and forks a process for each compilation; the real build then
finds the results in Triton's cache. State that the user's code and Triton's autotuner keep of those launches is lost
with the fork. Workers have torch compute with one thread: more would not survive a fork.
"""

import contextlib
import os
import pickle
import select
import signal
from collections.abc import Callable, Generator
from io import FileIO
from typing import Any

from triton import knobs

from kernel_lsp.compiler.ptx.ptxas import PtxasUsage

_MOST = 16  # each also starts a ptxas, and a worker with more than 64 processes is killed
_PATIENCE_SECONDS = 60.0  # after this the file is built as if nothing had been compiled ahead

Usage = dict[bytes, PtxasUsage]
"""Kernel digest -> output of ptxas."""


def precompile(launch_all: Callable[[], object], heard: Callable[[], Usage], processes: int) -> Usage:
    """Compile the kernels that `launch_all` launches, several at a time.

    Errors are ignored: they occur again when the file is built, and are reported there.

    Args:
        launch_all: runs the user's code.
        heard: returns the ptxas output of the current process; called in each compiling process.
        processes: how many may compile side by side; with one, nothing is done ahead.

    Returns:
        The ptxas output of all processes, which Triton's cache does not keep.
    """
    if processes == 1:
        return {}
    try:
        ours, theirs = os.pipe()
        leader = os.fork()
    except OSError:  # the limit of processes is reached
        return {}
    if leader == 0:
        try:
            usage = _Leader(min(processes, _MOST), heard).compile(launch_all)
            FileIO(theirs, "w").write(pickle.dumps(usage))
        finally:
            os._exit(0)
    os.close(theirs)
    with FileIO(ours) as said:
        try:
            ended = select.select([said], [], [], _PATIENCE_SECONDS)[0]
            return pickle.loads(said.read()) if ended else {}
        except Exception:  # the user's code has ended or disturbed the leader
            return {}
        finally:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(leader, signal.SIGKILL)
                os.waitpid(leader, 0)


class _Leader:
    """Intercepts compilations at a launch, in the leader and in its forks."""

    def __init__(self, room: int, heard: Callable[[], Usage]) -> None:
        self._room, self._heard = room, heard
        self._seen: set[tuple[object, str]] = set()
        self._forks: list[tuple[int, FileIO]] = []
        self._answer: FileIO | None = None  # set only in a fork
        self._usage: Usage = {}

    def compile(self, launch_all: Callable[[], object]) -> Usage:
        """Run through the launches and wait until all kernels are compiled; return the ptxas output."""
        with self._asked_first(), contextlib.suppress(BaseException):
            launch_all()
        while self._forks:
            self._wait_for_one()
        return self._usage

    @contextlib.contextmanager
    def _asked_first(self) -> Generator[None]:
        """Make Triton ask, within the context, before it compiles, and skip the launches."""
        knobs.runtime.jit_cache_hook = self._leave_to_fork
        knobs.runtime.kernel_load_end_hook.add(self._end_fork)
        try:
            yield
        finally:
            self._end_fork()

    def _leave_to_fork(self, *, key: str, fn: Any, **_: object) -> bool:
        """Return True if Triton is to skip the kernel: always, except in the fork that is to compile it."""
        self._end_fork()  # ends a fork that failed to compile its own kernel
        if (fn.jit_function, key) in self._seen:
            return True
        self._seen.add((fn.jit_function, key))
        if len(self._forks) == self._room:
            self._wait_for_one()
        ours, theirs = os.pipe()
        fork = os.fork()
        if fork == 0:
            self._answer = FileIO(theirs, "w")
            return False
        os.close(theirs)
        self._forks.append((fork, FileIO(ours)))
        return True

    def _wait_for_one(self) -> None:
        fork, said = self._forks.pop(0)
        with said, contextlib.suppress(EOFError):  # the fork failed to compile its own kernel
            self._usage |= pickle.loads(said.read())
        os.waitpid(fork, 0)

    def _end_fork(self, *_: object, **__: object) -> None:
        if self._answer is not None:
            try:
                self._answer.write(pickle.dumps(self._heard()))
            finally:
                os._exit(0)
