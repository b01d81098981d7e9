"""Spans of time: of requests and stages in the parent, and of work inside a worker, which come with its answers.

All are read from `time.monotonic_ns`. On Linux that is CLOCK_MONOTONIC, one clock for all processes of a machine, so
spans of the parent and of its workers lie on one axis. They are shown to people and decide nothing: a worker runs a
candidate, which may report whatever it likes.
"""

import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

PARENT = "kernel-lsp"
"""Role of the parent in a log."""
MAKE_CONTEXT = "make a context on the GPU"
"""Name of the first span of a worker that uses one."""
_MOST_OF_A_WORKER = 256  # spans between two answers; the latest are kept
_MOST_OF_A_LOG = 8192
_LONGEST_NAME = 60


class WorkSpan(msgspec.Struct, frozen=True, array_like=True):
    """One piece of work; times in nanoseconds. With `gpu` the process waited for the GPU to do it."""

    name: str
    began: int
    ended: int
    gpu: bool = False


class WorkerSpans:
    """The spans of one worker since its last answer."""

    def __init__(self) -> None:
        self._spans: deque[WorkSpan] = deque(maxlen=_MOST_OF_A_WORKER)

    @contextmanager
    def span(self, name: str, *, gpu: bool = False) -> Generator[None]:
        """Note the time of the block, also if it raises."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self._spans.append(WorkSpan(name, began, time.monotonic_ns(), gpu))

    def drain(self) -> tuple[WorkSpan, ...]:
        """Return the spans, and forget them."""
        spans = tuple(self._spans)
        self._spans.clear()
        return spans


WORKER = WorkerSpans()
"""The spans of this process, where it is a worker."""


@dataclass(frozen=True, slots=True)
class LoggedSpan:
    """A span with the process it was in."""

    pid: int
    role: str
    span: WorkSpan


class SpanLog:
    """The latest spans of a parent and its workers, in the order in which they ended or were reported."""

    def __init__(self) -> None:
        self._spans: deque[LoggedSpan] = deque(maxlen=_MOST_OF_A_LOG)

    @contextmanager
    def span(self, name: str) -> Generator[None]:
        """Note when the block of this `with` began and ended, as work of the parent process."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self.add(os.getpid(), PARENT, WorkSpan(name, began, time.monotonic_ns()))

    def add(self, pid: int, role: str, span: WorkSpan) -> None:
        """Note a span of a process."""
        self._spans.append(LoggedSpan(pid, role, span))

    def report(self, pid: int, role: str, spans: Sequence[WorkSpan], since: int) -> None:
        """Note what a worker reports, clipped to the time from `since` until now."""
        now = time.monotonic_ns()
        for span in spans[:_MOST_OF_A_WORKER]:
            began = min(max(span.began, since), now)
            self.add(pid, role, WorkSpan(span.name[:_LONGEST_NAME], began, min(max(span.ended, began), now), span.gpu))

    def since(self, began: int) -> Iterable[LoggedSpan]:
        """Return the spans that ended at or after a time, by `time.monotonic_ns`."""
        return [logged for logged in self._spans if logged.span.ended >= began]
