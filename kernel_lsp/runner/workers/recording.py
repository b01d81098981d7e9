"""A segment of launches, recorded once as a CUDA graph and replayed for each sample of their times.

Each launch works on inputs of its own, as far as memory allows, and its outputs stay where they are until the next
segment: so every timed launch can be checked, by its checksum or against the truth, and nobody knows beforehand which
of them will be. Outputs are full of one byte when a segment starts, another one in each recording: so a launch that
does nothing leaves that, and nobody can leave out what happens to be there already.

A `cold` segment flushes the L2 cache before each launch and times each between two events. A `short` one, for launches
that two events would blur, runs all of them one after another between two events. Two probes round the segment read
some multiprocessors' cycle counters against the global nanosecond timer: the SM clock, without asking the driver.

A launch that cannot be captured (it synchronises, or uses a stream that nothing joins) is enqueued launch by launch
behind a kernel that keeps the queue full.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.device.driver import LoadedModule
from kernel_lsp.runner.messages.subject import Mode
from kernel_lsp.runner.messages.subject_answers import Recorded, Segment
from kernel_lsp.runner.spans import WORKER
from kernel_lsp.runner.workers import graphs
from kernel_lsp.runner.workers.allocations import WatchedAllocations
from kernel_lsp.runner.workers.graphs import Mark
from kernel_lsp.runner.workers.stopwatch import Stopwatch, Timer, poison
from kernel_lsp.runner.workers.torch_types import nested_list

_current_stream, _set_stream = torch.cuda.current_stream, torch.cuda.set_stream


@dataclass(frozen=True, slots=True)
class BufferLaunch:
    """A launch on one buffer: the call, the memory of its inputs, and a function that restores changed inputs."""

    call: Callable[[], Sequence[Tensor]]
    inputs: Tensor
    restore: Callable[[], None] | None = None


class NotCapturableError(Exception):
    """The launch cannot be recorded as a CUDA graph. This process must not be used for further launches."""


class Recording:
    """Launches made ready for timing.

    Args:
        watch: shared by all recordings of this process.
        launches: each on its buffer.
        mode: see above.
        salt: of the checksums.
        poison: byte that outputs are full of when a segment starts.
        capture: record a graph; otherwise launches are enqueued one by one on the default stream, where code that
            names no stream runs too.

    Raises:
        NotCapturableError: `capture` is asked for, and the launch synchronises or leaves its stream.
    """

    def __init__(
        self,
        watch: Stopwatch,
        launches: Sequence[BufferLaunch],
        mode: Mode,
        salt: int,
        *,
        poison: int,
        capture: bool = True,
    ) -> None:
        self._watch, self._launches, self._mode, self._salt = watch, launches, mode, salt
        self._byte = poison
        self._captured = capture
        self._restores = any(launch.restore is not None for launch in launches)
        self.outputs: list[tuple[Tensor, ...]] = []
        self._timers = [Timer() for _ in launches] if mode == "cold" else [Timer()]
        self._sums: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._poisoning: torch.cuda.CUDAGraph | None = None
        self._marks: list[tuple[Mark, Mark]] = []
        self._stamps: list[tuple[Timer, int, Mark]] = []
        self._strays = False
        self._host_us: float | None = None
        self._stream = watch.stream if capture else torch.cuda.default_stream()
        self._order = graphs.GraphOrder()
        if capture:
            with torch.cuda.stream(self._stream):
                self._capture()

    @property
    def intact(self) -> bool:
        """True while it and what it times with are of our classes, and nothing hides a method of theirs."""
        parts = [(self, Recording), (self._watch, Stopwatch), *((timer, Timer) for timer in self._timers)]
        return all(type(part) is kind and not vars(part).keys() & vars(kind).keys() for part, kind in parts)

    def described(self) -> Recorded:
        """Return how launches are ordered and how their outputs lie."""
        disorder = "leaves another stream the current one" if self._strays else self._order.disorder()
        return Recorded(disorder, "" if self._restores else _overlap(self.outputs), self._order.between)

    def segment(self, repeats: int = 1) -> Segment:
        """Run a segment so many times in a row, and return the last.

        Each short one finds an empty cache.
        """
        with torch.cuda.stream(self._stream):
            self._watch.empty_cache()
            with WORKER.span("segment", gpu=True):
                for number in range(repeats):
                    if number > 0 and self._mode == "short":
                        self._watch.evict()
                    self._run_once()
                self._stream.synchronize()
            times = tuple(timer.elapsed_us() for timer in self._timers)
            if self._mode == "short":
                times = (times[0] / len(self._launches),)
            return Segment(times, self._checksums(), self._watch.clock_mhz())

    def _run_once(self) -> None:
        if self._graph is None:
            self._enqueue()
            return
        if self._poisoning is not None:
            self._poisoning.replay()
        self._graph.replay()

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            self._segment()
            end = graphs.tail(self._stream.cuda_stream)
            graph.capture_end()
        except Exception as error:
            raise NotCapturableError(str(error)) from error
        self._order = graphs.order(*graphs.edges_of(graph.raw_cuda_graph()), self._marks, end)
        for timer, which, (node,) in self._stamps:
            timer.renew(which, node)
        graph.instantiate()
        self._graph = graph
        if not self._restores:
            self._poisoning = torch.cuda.CUDAGraph()
            self._poisoning.capture_begin(capture_error_mode="thread_local")
            self._poison()
            self._poisoning.capture_end()

    def _enqueue(self) -> None:
        """Run a segment launch by launch, without a graph."""
        if self._host_us is None:  # measured once: later the first launch of a segment is timed as well
            started = time.perf_counter()
            self._launches[0].call()
            self._host_us = (time.perf_counter() - started) * 1e6
            self._stream.synchronize()
        if not self._restores:
            self._poison()
        self.outputs = []
        host_us = len(self._launches) * (self._host_us + policy.EAGER_SPIN_SLACK_US)
        self._watch.spin(min(host_us * policy.EAGER_SPIN_FACTOR, policy.MOST_SPIN_US))
        self._segment()

    def _segment(self) -> None:
        """Enqueue one segment; the stream may be under capture."""
        short, last = self._mode == "short", len(self._launches) - 1
        made: list[tuple[Tensor, ...]] = []
        self._watch.read_clocks(0)
        if self._sums is not None:
            self._sums.zero_()
        for number, launch in enumerate(self._launches):
            if launch.restore is not None:
                launch.restore()
            if not short:
                self._watch.flush(launch.inputs)
            timer = self._timers[0 if short else number]
            if not short or number == 0:
                self._stamp(timer, 0)
            start = self._mark()
            made.append(tuple(launch.call()))
            self._come_back()
            if self._captured:
                self._marks.append((start, self._mark()))
            if not short or number == last:
                self._stamp(timer, 1)
            if not short:
                self._sum_up(number, made[-1])
        if short:
            for number, outputs in enumerate(made):
                self._sum_up(number, outputs)
        self._watch.read_clocks(1)
        self.outputs = made

    def _stamp(self, timer: Timer, which: int) -> None:
        timer.mark(which, self._stream, captured=self._captured)
        if self._captured:
            self._stamps.append((timer, which, self._mark()))

    def _mark(self) -> Mark:
        return graphs.tail(self._stream.cuda_stream) if self._captured else frozenset()

    def _come_back(self) -> None:
        """Make our stream the current one again if a launch has changed it."""
        if _current_stream().cuda_stream != self._stream.cuda_stream:
            self._strays = True
            _set_stream(self._stream)

    def _sum_up(self, number: int, outputs: tuple[Tensor, ...]) -> None:
        if self._sums is None:
            self._sums = torch.zeros((len(self._launches), len(outputs)), dtype=torch.int64, device="cuda")
        for place, output in enumerate(outputs):
            self._watch.add_checksum(output, self._sums[number, place], self._salt)

    def _checksums(self) -> tuple[tuple[int, ...], ...]:
        return () if self._sums is None else tuple(map(tuple, cast(list[list[int]], nested_list(self._sums))))

    def _poison(self) -> None:
        for output in (output for outputs in self.outputs for output in outputs):
            poison(output, self._byte)


def _overlap(outputs: Sequence[Sequence[Tensor]]) -> str:
    """Return how outputs of different launches share memory, as the end of a sentence; empty if they do not."""
    ranges = sorted(
        (output.data_ptr(), output.data_ptr() + _span(output), number)
        for number, made in enumerate(outputs)
        for output in made
        if output.numel()
    )
    for (_, end, one), (start, _, other) in pairwise(ranges):
        if start < end and one != other:
            first, second = sorted((one, other))
            return f"returns memory for launch {second + 1} that still holds the output of launch {first + 1}"
    return ""


def _span(tensor: Tensor) -> int:
    """Return the bytes from the first element of a tensor to its last."""
    reach = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return reach * tensor.itemsize


def warmed_stopwatch(probes: Binary) -> "Stopwatch":
    """Return a stopwatch, after CUDA has loaded the library kernels that checks and timing use."""
    with WORKER.span("warm the stopwatch", gpu=True):
        watch = Stopwatch(LoadedModule(probes, {}), torch.cuda.Stream())
        x = torch.zeros(4096, device="cuda")
        launch = BufferLaunch(lambda: (torch.empty_like(x).copy_(x),), x)
        Recording(watch, [launch, launch], "cold", 1, poison=policy.POISON_BYTE).segment()
        with WatchedAllocations() as watcher:
            torch.empty_like(x)
        watcher.trampled()
        torch.cuda.synchronize()
    return watch
