"""What a Triton file launches, compiled side by side: each kernel in a process of its own, into Triton's cache.

Worker processes only. Triton compiles where a launch needs it, one kernel after the other. So a fork, the leader, goes
through the launches once without making them. It leaves each compilation to a fork of its own, and what was compiled is
found in the cache afterwards. Of all that the user's code and Triton's tuner remember of such launches nothing stays.

Workers have torch compute with one thread: more would not survive a fork.
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

from kernel_lsp.compiler.ptxas import PtxasUsage

_MOST = 16  # each starts a ptxas too, and a worker that has more than 64 processes is ended
_PATIENCE_SECONDS = 60.0  # then the file is built as if nothing had been compiled ahead

Usage = dict[bytes, PtxasUsage]
"""What ptxas said, by some digest of a kernel."""


def compile_ahead(launch_all: Callable[[], object], heard: Callable[[], Usage], processes: int) -> Usage:
    """Compile what `launch_all` launches, several kernels at a time.

    What goes wrong is left alone: it does so again where the file is built, and is told there.

    Args:
        launch_all: runs the user's code.
        heard: what ptxas said in this process; asked in each that has compiled.
        processes: how many may compile side by side; with one, nothing is done ahead.

    Returns:
        What ptxas said in all of them; Triton's cache keeps nothing of it.
    """
    if processes == 1:
        return {}
    try:
        ours, theirs = os.pipe()
        leader = os.fork()
    except OSError:  # as many processes as there may be
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
    """Stands between a launch and its compilation, in the leader and in its forks."""

    def __init__(self, room: int, heard: Callable[[], Usage]) -> None:
        self._room, self._heard = room, heard
        self._seen: set[tuple[object, str]] = set()
        self._forks: list[tuple[int, FileIO]] = []
        self._answer: FileIO | None = None  # in a fork only
        self._usage: Usage = {}

    def compile(self, launch_all: Callable[[], object]) -> Usage:
        """Go through the launches and wait until all is compiled."""
        with self._asked_first(), contextlib.suppress(BaseException):
            launch_all()
        while self._forks:
            self._wait_for_one()
        return self._usage

    @contextlib.contextmanager
    def _asked_first(self) -> Generator[None]:
        """Within it Triton asks before it compiles, and is told not to launch."""
        knobs.runtime.jit_cache_hook = self._leave_to_fork
        knobs.runtime.kernel_load_end_hook.add(self._end_fork)
        try:
            yield
        finally:
            self._end_fork()

    def _leave_to_fork(self, *, key: str, fn: Any, **_: object) -> bool:
        """Whether Triton is to go on without the kernel: always, but in the fork that is there to compile it."""
        self._end_fork()  # it could not compile its own
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
        with said, contextlib.suppress(EOFError):  # it could not compile its own
            self._usage |= pickle.loads(said.read())
        os.waitpid(fork, 0)

    def _end_fork(self, *_: object, **__: object) -> None:
        if self._answer is not None:
            try:
                self._answer.write(pickle.dumps(self._heard()))
            finally:
                os._exit(0)
