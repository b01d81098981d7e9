"""Timing one launch on the GPU: segments of launches recorded once as a CUDA graph and replayed.

A recorded segment holds, for each of its launches: an L2 flush where the mode asks for one, an event, the launch, an
event, then (outside the timed part) a checksum of each output and 0xFF over it. So every timed launch shows what it
computed, and one that does nothing leaves poison behind. Two probes round the segment read some multiprocessors'
cycle counters against the global nanosecond timer: the SM clock during the segment, without asking the driver.

A launch that cannot be captured (it synchronises, or uses another stream) is timed launch by launch behind a spin
kernel that keeps the queue full.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernel_lsp.device.driver import LoadedModule, check, cu
from kernel_lsp.device.slab import POISON
from kernel_lsp.runner.workers.fused import FusedChecksum

_PROBED = 16  # multiprocessors whose clock is read
_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: a node of its own in a captured graph
_PAIRS = 5  # repetitions of the two graphs in one segment of graph mode
_BURST = 1000  # launches that are enqueued together under a steady load
_BURST_US = 5000.0  # and about how long they may take
_SPREAD = 3  # the longer graph of graph mode holds this many times the launches of the shorter


@dataclass(frozen=True, slots=True)
class Segment:
    """Microseconds of each launch, the outputs' checksums after each, and the SM clock in MHz."""

    times_us: tuple[float, ...]
    checksums: tuple[tuple[int, ...], ...]
    clock_mhz: float | None


class Stopwatch:
    """What all recordings of one worker share: the flush buffer, the probes, the stream."""

    def __init__(self, probes: LoadedModule, stream: torch.cuda.Stream) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.stream = stream
        self._probes = probes
        self.checksum = FusedChecksum(probes)
        self._multiprocessors = properties.multi_processor_count
        self._flush = torch.empty(2 * properties.L2_cache_size, dtype=torch.uint8, device="cuda")
        self._clocks = torch.zeros((2, _PROBED, 2), dtype=torch.int64, device="cuda")

    def flush(self, stream: torch.cuda.Stream) -> None:
        """Evict the L2 cache by writing twice its size."""
        pointer, words = self._flush.data_ptr(), self._flush.numel() // 4
        check(cu.cuMemsetD32Async(pointer, 0x3F800000, words, stream.cuda_stream), "flushing the L2 cache")

    def read_clocks(self, which: int) -> None:
        """Enqueue a probe: the first multiprocessors write their cycle counter and the global timer."""
        self._probes["read_clock"][2 * self._multiprocessors, 1](self._clocks[which], _PROBED)

    def spin(self, microseconds: float) -> None:
        """Enqueue a kernel that keeps the GPU busy for a while."""
        self._probes["spin"][1, 1](int(microseconds * 1000))

    def clock_mhz(self) -> float | None:
        """SM clock between the two last probes: median over multiprocessors that both of them reached."""
        start, end = self._clocks.tolist()
        rates = [
            (e[0] - s[0]) / (e[1] - s[1]) * 1000
            for s, e in zip(start, end, strict=True)
            if s[1] and e[1] > s[1] and e[0] > s[0]
        ]
        self._clocks.zero_()
        return statistics.median(rates) if rates else None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Launches one after another without pause: how many, the GPU seconds they took, and the SM clock in MHz."""

    launches: int
    seconds: float
    clock_mhz: float | None


class NotCapturableError(Exception):
    """The launch cannot be recorded as a CUDA graph. What is left of the attempt makes this process unfit for more."""


class Recording:
    """A launch made ready for timing in one mode: `cold`, `streaming` or `graph`.

    Args:
        watch: what all recordings of this process share.
        launch: the launch, returning its outputs.
        mode: see `judge.timing`.
        launches: how many in a segment.
        restore: puts back what the launch changes in place; then every launch works on the same inputs.
        capture: whether to record a graph; otherwise launches are enqueued one by one on the default stream, where
            code that names no stream runs too.

    Raises:
        NotCapturableError: `capture` is asked for, and the launch synchronises or leaves its stream.
    """

    def __init__(
        self,
        watch: Stopwatch,
        launch: Callable[[], Sequence[Tensor]],
        mode: str,
        launches: int,
        *,
        restore: Callable[[], None] | None = None,
        capture: bool = True,
    ) -> None:
        self._watch, self._launch, self.mode, self.launches = watch, launch, mode, launches
        self._restore = restore
        self.outputs: tuple[Tensor, ...] = ()
        self._events: list[tuple[Any, Any]] = []
        self._sums: list[list[Tensor]] = []
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._host_us: float | None = None
        self._stream = watch.stream if capture else torch.cuda.default_stream()
        with torch.cuda.stream(self._stream):
            if capture:
                self._capture()
            else:
                self._events = [(_event(), _event()) for _ in range(launches)]

    def __del__(self) -> None:
        for pair in self._events:
            for event in pair:
                cu.cuEventDestroy(event)

    def segment(self) -> Segment:
        """Run one segment. What the last one left in output memory is poisoned first."""
        with torch.cuda.stream(self._stream):
            if self._restore is None:
                for output in self.outputs:
                    _poison(output)
            if not self._graphs:
                return self._eager()
            if self.mode == "graph":
                return self._difference()
            self._graphs[0].replay()
            return self._finish(tuple)

    def _capture(self) -> None:
        counts = (self.launches,) if self.mode != "graph" else (self.launches, _SPREAD * self.launches)
        for count in counts:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._record(count)
                graph.capture_end()
            except Exception as error:
                raise NotCapturableError(str(error)) from error
            self._graphs.append(graph)

    def _record(self, count: int) -> None:
        """Enqueue one segment of `count` launches while the stream is being captured."""
        self._watch.read_clocks(0)
        whole = self.mode == "graph"
        if whole:
            self._events.append((_event(), _event()))
            self._mark(self._events[-1][0])
        for number in range(count):
            last = number == count - 1
            if not whole:
                self._before()
                self._events.append((_event(), _event()))
                self._mark(self._events[-1][0])
            outputs = tuple(self._launch())
            if not whole or last:
                self._mark(self._events[-1][1])
                self._after(outputs, keep=last)
        self._watch.read_clocks(1)

    def _before(self) -> None:
        if self._restore is not None:
            self._restore()
        if self.mode == "cold":
            self._watch.flush(self._stream)

    def _after(self, outputs: tuple[Tensor, ...], *, keep: bool) -> None:
        self._sums.append([self._watch.checksum(output) for output in outputs])
        if keep:
            self.outputs = outputs
        elif self._restore is None:
            for output in outputs:
                _poison(output)

    def _mark(self, event: Any) -> None:
        check(cu.cuEventRecordWithFlags(event, self._stream.cuda_stream, _EXTERNAL), "recording an event")

    def _difference(self) -> Segment:
        differences: list[float] = []
        for _ in range(_PAIRS):
            for graph in self._graphs:
                graph.replay()
            self._stream.synchronize()
            short, long = (_elapsed_us(*pair) for pair in self._events)
            differences.append((long - short) / ((_SPREAD - 1) * self.launches))
        return self._finish(lambda _: tuple(differences))

    def _eager(self) -> Segment:
        if self._host_us is None:  # learned once: afterwards the first launch of a segment is a timed one
            started = time.perf_counter()
            self._before()
            self._launch()
            self._host_us = (time.perf_counter() - started) * 1e6
            self._stream.synchronize()
        self._sums = []
        self._watch.spin(min(1.5 * self.launches * (self._host_us + 20), 50_000))
        self._watch.read_clocks(0)
        for start, end in self._events:
            self._before()
            check(cu.cuEventRecord(start, self._stream.cuda_stream), "recording an event")
            self.outputs = tuple(self._launch())
            check(cu.cuEventRecord(end, self._stream.cuda_stream), "recording an event")
            self._sums.append([self._watch.checksum(output) for output in self.outputs])
        self._watch.read_clocks(1)
        return self._finish(tuple)

    def _finish(self, choose: Callable[[list[float]], tuple[float, ...]]) -> Segment:
        """Wait for the GPU and gather what it measured; `choose` may replace the times between single events."""
        self._stream.synchronize()
        times = choose([_elapsed_us(*pair) for pair in self._events])
        flat = torch.stack([value for row in self._sums for value in row]).tolist() if self._sums else []
        width = len(self._sums[0]) if self._sums else 1
        sums = tuple(tuple(flat[i : i + width]) for i in range(0, len(flat), width))
        return Segment(times, sums, self._watch.clock_mhz())


def run_for(
    watch: Stopwatch,
    launch: Callable[[], Sequence[Tensor]],
    seconds: float,
    launch_us: float,
    *,
    restore: Callable[[], None] | None = None,
    capture: bool = True,
) -> Stretch:
    """Launch again and again without pause for about so many seconds; nothing is checked, flushed or filled between.

    Args:
        watch: what all recordings of this process share.
        launch: the launch, returning its outputs.
        seconds: how long, by this process's clock.
        launch_us: about how long one launch takes.
        restore: puts back what the launch changes in place, before each launch; its time counts too.
        capture: whether launches are replayed as CUDA graphs.
    """
    count = max(1, min(_BURST, int(_BURST_US / launch_us)))
    stream = watch.stream if capture else torch.cuda.default_stream()

    def enqueue() -> None:
        for _ in range(count):
            if restore is not None:
                restore()
            launch()

    burst: Callable[[], None] = enqueue

    start, end, fences = _event(), _event(), (_event(), _event())
    try:
        with torch.cuda.stream(stream):
            if capture:
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(capture_error_mode="thread_local")
                enqueue()
                graph.capture_end()
                burst = graph.replay
            burst()
            watch.read_clocks(0)
            check(cu.cuEventRecord(start, stream.cuda_stream), "recording an event")
            bursts, began = 0, time.perf_counter()
            while time.perf_counter() - began < seconds:
                burst()
                check(cu.cuEventRecord(fences[bursts % 2], stream.cuda_stream), "recording an event")
                bursts += 1
                if bursts > 1:  # one burst is always waiting while another runs
                    check(cu.cuEventSynchronize(fences[bursts % 2]), "waiting for launches")
            check(cu.cuEventRecord(end, stream.cuda_stream), "recording an event")
            watch.read_clocks(1)
            stream.synchronize()
        return Stretch(bursts * count, _elapsed_us(start, end) / 1e6, watch.clock_mhz())
    finally:
        for event in (start, end, *fences):
            cu.cuEventDestroy(event)


def _event() -> Any:
    return check(cu.cuEventCreate(0), "making an event")


def _elapsed_us(start: Any, end: Any) -> float:
    return float(check(cu.cuEventElapsedTime(start, end), "reading an event")) * 1000


def _poison(output: Tensor) -> None:
    if output.is_contiguous():
        output.detach().view(-1).view(torch.uint8).fill_(POISON)
    elif output.is_floating_point():
        output.detach().fill_(float("nan"))
