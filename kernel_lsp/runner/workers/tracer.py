"""Trace the GPU's work during a call: kernels, copies and fills with their streams and times. Worker processes only.

CUPTI's activity records, through torch's profiler, by its older interface: `torch.profiler` imports torch's compiler
when it starts, for seconds. The functions needed are bound here, before any candidate is loaded.
"""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar, cast

import msgspec
import torch
from torch.autograd.profiler import profile

from kernel_lsp.runner.messages.subject_answers import Traced, TracedOperation
from kernel_lsp.runner.workers.ears import Ears
from kernel_lsp.runner.workers.stopwatch import Stopwatch
from kernel_lsp.runner.workers.surroundings import native_threads

_T = TypeVar("_T")


class _Profiler(Protocol):
    """The part of torch's profiler that is used here."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...
    def export_chrome_trace(self, path: str) -> None: ...


_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_FILE = Path("trace.json")
_clock = time.perf_counter
_synchronize, _read = torch.cuda.synchronize, msgspec.json.decode
_profile = cast(Callable[..., _Profiler], profile)


def trace_launch(watch: Stopwatch, ears: Ears, launch: Callable[[], object]) -> tuple[Traced, int]:
    """Trace one launch on the default stream, where code that names no stream runs too.

    A spinning kernel keeps the GPU busy until everything is enqueued: what does not wait for it does not wait for its
    inputs either. One that reads clocks comes after it.

    Returns:
        The operations that ran, without threads, and how many threads this process had before the profiler started.
    """
    launch()
    _synchronize()
    started = _clock()
    launch()
    busy_us = min(1.5e6 * (_clock() - started) + 200, 20_000)
    _synchronize()
    threads = native_threads()

    def work() -> None:
        watch.spin(busy_us)
        ears.listen()
        launch()
        watch.read_clocks(1)

    _, operations, failed = trace(work)
    return Traced(operations, ears.heard(), ears.in_graphs, failed), threads


def trace(work: Callable[[], _T]) -> tuple[_T, tuple[TracedOperation, ...], str]:
    """Do `work` and wait for the GPU; a file in the working folder is written and removed.

    Returns:
        The result of `work`, the GPU's operations, and why there are none, if the profiler says so.
    """
    try:
        profiler = _profile(use_device="cuda", use_cpu=False, use_kineto=True)
        profiler.__enter__()
    except (RuntimeError, AssertionError) as error:  # the second where torch was built without CUPTI
        return work(), (), str(error)
    try:
        done = work()
        _synchronize()
    finally:
        profiler.__exit__(None, None, None)
    try:
        profiler.export_chrome_trace(str(_FILE))
        events = _read(_FILE.read_bytes(), type=_Trace).events
    finally:
        _FILE.unlink(missing_ok=True)
    return done, tuple(_operation(event) for event in events if event.category in _KINDS), ""


class _Details(msgspec.Struct, frozen=True):
    """The details of a trace event, where present."""

    stream: int = 0
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    nbytes: int | None = msgspec.field(name="bytes", default=None)


class _Event(msgspec.Struct, frozen=True):
    """One event of a trace in Chrome's format; times in microseconds."""

    name: str = ""
    category: str = msgspec.field(name="cat", default="")
    start: float = msgspec.field(name="ts", default=0.0)
    duration: float = msgspec.field(name="dur", default=0.0)
    details: msgspec.Raw = msgspec.field(name="args", default=msgspec.Raw(b"{}"))


class _Trace(msgspec.Struct, frozen=True):
    """A trace in Chrome's format."""

    events: tuple[_Event, ...] = msgspec.field(name="traceEvents")


def _operation(event: _Event) -> TracedOperation:
    told = _read(event.details, type=_Details)
    return TracedOperation(
        _KINDS[event.category],
        event.name,
        told.stream,
        event.start,
        event.duration,
        told.grid,
        told.block,
        told.nbytes,
    )
