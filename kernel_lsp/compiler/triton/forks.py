"""Runs tasks that may crash, hang or change the process in forked processes, several at a time.

Worker processes only: they have torch compute with one thread, since more would not survive a fork.
"""

import contextlib
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from io import FileIO
from typing import Any, TypeVar

_T = TypeVar("_T")


def in_forks(tasks: Sequence[Callable[[], _T]], processes: int, cpu_seconds: int, deadline: float) -> list[_T | None]:
    """Return each task's result, in order; None for a task that raised, crashed or took too long.

    Args:
        tasks: what they return must be picklable.
        processes: how many may run at a time.
        cpu_seconds: of the processor's time that a task, and each program that it starts, may take.
        deadline: on `time.perf_counter`; what has not ended by then is ended.
    """
    answers: dict[int, _T | None] = {}
    running: dict[int, tuple[int, FileIO, bytearray]] = {}  # task -> process, pipe, bytes read
    waiting = list(range(len(tasks)))
    while waiting or running:
        while waiting and len(running) < max(processes, 1) and time.perf_counter() < deadline:
            at = waiting.pop(0)
            running[at] = (*_forked(tasks[at], cpu_seconds), bytearray())
        if time.perf_counter() >= deadline:
            waiting.clear()
        heard = [said for _, said, _ in running.values()]
        ready = select.select(heard, [], [], max(0.0, deadline - time.perf_counter()))[0] if heard else []
        for at, (process, said, content) in list(running.items()):
            part = said.read(1 << 20) if said in ready else None
            content += part or b""
            if part == b"" or time.perf_counter() >= deadline:
                del running[at]
                answers[at] = _ended(process, said, bytes(content))
    return [answers.get(at) for at in range(len(tasks))]


def _forked(task: Callable[[], object], cpu_seconds: int) -> tuple[int, FileIO]:
    ours, theirs = os.pipe()
    process = os.fork()
    if process:
        os.close(theirs)
        return process, FileIO(ours)
    try:
        os.setpgid(0, 0)  # so that it can be ended together with the programs that it starts
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        answer = pickle.dumps(task())
        with os.fdopen(theirs, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)


def _ended(process: int, said: FileIO, content: bytes) -> Any:
    said.close()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    try:
        return pickle.loads(content)
    except Exception:  # the task did not finish
        return None
