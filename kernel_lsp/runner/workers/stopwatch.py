"""Timing one launch on the GPU: segments of launches recorded once as a CUDA graph and replayed.

A recorded segment holds, for each of its launches: an L2 flush where the mode asks for one, an event, the launch, an
event, then (outside the timed part) a checksum of each output and 0xFF over it. So every timed launch shows what it
computed, and one that does nothing leaves poison behind. Two probes round the segment read some multiprocessors'
cycle counters against the global nanosecond timer: the SM clock during the segment, without asking the driver.

A launch that cannot be captured (it synchronises, or uses another stream) is timed eagerly behind a spin kernel that
keeps the queue full.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from cuda.bindings import driver as cu  # pyright: ignore[reportAttributeAccessIssue]
from torch import Tensor

from kernel_lsp.device.driver import LoadedModule, check
from kernel_lsp.device.slab import POISON

_PROBED = 16  # multiprocessors whose clock is read
_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: a node of its own in a captured graph
_PAIRS = 5  # repetitions of the two graphs in one segment of graph mode
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
        self._multiprocessors = properties.multi_processor_count
        self._flush = torch.empty(2 * properties.L2_cache_size, dtype=torch.uint8, device="cuda")
        self._clocks = torch.zeros((2, _PROBED, 2), dtype=torch.int64, device="cuda")

    def flush(self) -> None:
        """Evict the L2 cache by writing twice its size."""
        pointer, words = self._flush.data_ptr(), self._flush.numel() // 4
        check(cu.cuMemsetD32Async(pointer, 0x3F800000, words, self.stream.cuda_stream), "flushing the L2 cache")

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


class Recording:
    """A launch made ready for timing in one mode: `cold`, `streaming` or `graph`."""

    def __init__(
        self, watch: Stopwatch, launch: Callable[[], Sequence[Tensor]], mode: str, launches: int, *, in_place: bool
    ) -> None:
        self._watch, self._launch, self.mode, self.launches, self.in_place = watch, launch, mode, launches, in_place
        self.outputs: tuple[Tensor, ...] = ()
        self._events: list[tuple[Any, Any]] = []
        self._sums: list[list[Tensor]] = []
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self.captured = self._capture()

    def segment(self) -> Segment:
        """Run one segment. Output memory is poisoned first, unless the launch works in place."""
        if not self.in_place:
            for output in self.outputs:
                _poison(output)
        if not self.captured:
            return self._eager()
        if self.mode == "graph":
            return self._difference()
        self._graphs[0].replay()
        self._watch.stream.synchronize()
        times = tuple(_elapsed_us(*pair) for pair in self._events)
        return Segment(times, self._checksums(), self._watch.clock_mhz())

    def _capture(self) -> bool:
        counts = (self.launches,) if self.mode != "graph" else (self.launches, _SPREAD * self.launches)
        for count in counts:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._record(count)
            except Exception:
                _abandon(graph)
                return False
            try:
                graph.capture_end()
            except RuntimeError:
                return False
            self._graphs.append(graph)
        return True

    def _record(self, count: int) -> None:
        """Enqueue one segment of `count` launches while the stream is being captured."""
        self._watch.read_clocks(0)
        whole = self.mode == "graph"
        if whole:
            self._events.append((_event(), _event()))
            self._mark(self._events[-1][0])
        for number in range(count):
            last = number == count - 1
            if self.mode == "cold":
                self._watch.flush()
            if not whole:
                self._events.append((_event(), _event()))
                self._mark(self._events[-1][0])
            outputs = tuple(self._launch())
            if not whole or last:
                self._mark(self._events[-1][1])
                self._after(outputs, keep=last)
        self._watch.read_clocks(1)

    def _after(self, outputs: tuple[Tensor, ...], *, keep: bool) -> None:
        if self.in_place:
            self.outputs = outputs
            return
        self._sums.append([_checksum(output) for output in outputs])
        if keep:
            self.outputs = outputs
        else:
            for output in outputs:
                _poison(output)

    def _mark(self, event: Any) -> None:
        check(cu.cuEventRecordWithFlags(event, self._watch.stream.cuda_stream, _EXTERNAL), "recording an event")

    def _difference(self) -> Segment:
        times: list[float] = []
        for _ in range(_PAIRS):
            for graph in self._graphs:
                graph.replay()
            self._watch.stream.synchronize()
            short, long = (_elapsed_us(*pair) for pair in self._events)
            times.append((long - short) / ((_SPREAD - 1) * self.launches))
        return Segment(tuple(times), self._checksums(), self._watch.clock_mhz())

    def _eager(self) -> Segment:
        pairs = [(_event(), _event()) for _ in range(self.launches)]
        stream = self._watch.stream.cuda_stream
        started = time.perf_counter()
        self._launch()
        host_us = (time.perf_counter() - started) * 1e6
        self._watch.stream.synchronize()
        sums: list[list[Tensor]] = []
        self._watch.spin(min(1.5 * self.launches * (host_us + 20), 50_000))
        self._watch.read_clocks(0)
        for start, end in pairs:
            if self.mode == "cold":
                self._watch.flush()
            check(cu.cuEventRecord(start, stream), "recording an event")
            self.outputs = tuple(self._launch())
            check(cu.cuEventRecord(end, stream), "recording an event")
            if not self.in_place:
                sums.append([_checksum(output) for output in self.outputs])
        self._watch.read_clocks(1)
        self._watch.stream.synchronize()
        times = tuple(_elapsed_us(*pair) for pair in pairs)
        return Segment(times, tuple(tuple(int(s) for s in row) for row in sums), self._watch.clock_mhz())

    def _checksums(self) -> tuple[tuple[int, ...], ...]:
        if not self._sums:
            return ()
        flat = torch.stack([value for row in self._sums for value in row]).tolist()
        width = len(self._sums[0])
        return tuple(tuple(flat[i : i + width]) for i in range(0, len(flat), width))


def _event() -> Any:
    return check(cu.cuEventCreate(0), "making an event")


def _elapsed_us(start: Any, end: Any) -> float:
    return float(check(cu.cuEventElapsedTime(start, end), "reading an event")) * 1000


def _checksum(output: Tensor) -> Tensor:
    """Sum of the output's 32-bit words. It only has to show that something else was written, not to resist attack."""
    flat = output.detach().contiguous().view(-1).view(torch.uint8)
    words = flat.view(torch.int32) if flat.numel() % 4 == 0 else flat
    return words.sum(dtype=torch.int64)


def _poison(output: Tensor) -> None:
    if output.is_contiguous():
        output.detach().view(-1).view(torch.uint8).fill_(POISON)
    elif output.is_floating_point():
        output.detach().fill_(float("nan"))


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """End a capture that an exception broke; CUDA reports that it was invalidated, which we know."""
    try:
        graph.capture_end()
    except RuntimeError:
        return
