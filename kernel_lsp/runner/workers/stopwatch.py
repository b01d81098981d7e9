"""The harness's own work around launches on the GPU: flush the L2 cache, read clocks, delay, compute checksums."""

import statistics
from typing import cast

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.device.driver import LoadedModule, check, cu
from kernel_lsp.runner.workers.fused import FusedChecksum
from kernel_lsp.runner.workers.torch_types import device_properties, nested_list

_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: a node of its own in a captured graph
_DEMOTING = (1024, 256)  # blocks and threads


class Stopwatch:
    """The resources that all recordings of one worker share: the flush buffer, the probes, the stream."""

    def __init__(self, probes: LoadedModule, stream: torch.cuda.Stream) -> None:
        properties = device_properties()
        self.stream = stream
        self._probes = probes
        self._checksum = FusedChecksum(probes)
        self._multiprocessors = properties.multi_processor_count
        self._flush = torch.empty(policy.FLUSH_L2_FACTOR * properties.L2_cache_size, dtype=torch.uint8, device="cuda")
        self._clocks = torch.zeros((2, policy.PROBED_MULTIPROCESSORS, 2), dtype=torch.int64, device="cuda")

    def flush(self, inputs: Tensor) -> None:
        """Evict the L2 cache by writing twice its size, after demoting the lines of `inputs` to normal priority."""
        self._probes["demote"][_DEMOTING](inputs, inputs.nbytes)
        pointer, words = self._flush.data_ptr(), self._flush.numel() // 4
        stream = torch.cuda.current_stream().cuda_stream
        check(cu.cuMemsetD32Async(pointer, 0x3F800000, words, stream), "flushing the L2 cache")

    def empty_cache(self) -> None:
        """Evict all lines of the L2 cache, those that launches asked it to keep too; must not be captured."""
        check(cu.cuCtxResetPersistingL2Cache(), "resetting the L2 cache")
        self.evict()

    def evict(self) -> None:
        """Enqueue the eviction of lines, of those to be kept too.

        Normal lines do not displace those. So lines to be kept are written first, and then demoted to normal ones.
        """
        self._probes["occupy"][_DEMOTING](self._flush, self._flush.nbytes)
        self._probes["demote"][_DEMOTING](self._flush, self._flush.nbytes)

    def read_clocks(self, which: int) -> None:
        """Enqueue a probe: the first multiprocessors write their cycle counter and the global timer."""
        self._probes["read_clock"][2 * self._multiprocessors, 1](self._clocks[which], policy.PROBED_MULTIPROCESSORS)

    def spin(self, microseconds: float) -> None:
        """Enqueue a kernel that keeps the GPU busy for `microseconds`."""
        self._probes["spin"][1, 1](int(microseconds * 1000))

    def add_checksum(self, output: Tensor, total: Tensor, salt: int) -> None:
        """Enqueue the addition of an output's checksum under `salt` to `total`."""
        self._checksum.add(output, total, salt)

    def clock_mhz(self) -> float | None:
        """Return the SM clock between the last two probes, the median over multiprocessors; None if unknown."""
        start, end = cast(list[list[list[int]]], nested_list(self._clocks))
        rates = [
            (e[0] - s[0]) / (e[1] - s[1]) * 1000
            for s, e in zip(start, end, strict=True)
            if s[1] and e[1] > s[1] and e[0] > s[0]
        ]
        self._clocks.zero_()
        return statistics.median(rates) if rates else None


class Timer:
    """Two CUDA events around work on a stream."""

    def __init__(self) -> None:
        self._events = [_event(), _event()]
        self._known: list[object] = []

    def __del__(self) -> None:
        for event in (*self._events, *self._known):
            cu.cuEventDestroy(event)

    def mark(self, which: int, stream: torch.cuda.Stream, *, captured: bool) -> None:
        """Enqueue the start (0) or the end (1)."""
        flags = _EXTERNAL if captured else 0
        check(cu.cuEventRecordWithFlags(self._events[which], stream.cuda_stream, flags), "recording an event")

    def renew(self, which: int, node: int) -> None:
        """Have the `node` that marks the start (0) or the end (1) in a captured graph record a new event instead.

        Host code that runs under a capture can ask the graph for its events, and record one of them a second time. It
        knows no event that was made after the capture.
        """
        self._known.append(self._events[which])  # nodes of others may record it: it lives as long as they do
        self._events[which] = _event()
        check(
            cu.cuGraphEventRecordNodeSetEvent(cu.CUgraphNode(node), self._events[which]), "renewing an event of a graph"
        )

    def wait(self) -> None:
        """Wait until the GPU has reached the end event."""
        check(cu.cuEventSynchronize(self._events[1]), "waiting for launches")

    def elapsed_us(self) -> float:
        """Return the microseconds between the two events."""
        return float(check(cu.cuEventElapsedTime(*self._events), "reading an event")) * 1000


def poison(output: Tensor, byte: int) -> None:
    """Fill each element of an output with a byte; memory between the elements is not changed."""
    element = torch.full((output.itemsize,), byte, dtype=torch.uint8, device=output.device).view(output.dtype)
    output.detach().copy_(element.squeeze())  # an output may have no dimension, and takes nothing of one then


def _event() -> object:
    return check(cu.cuEventCreate(0), "making an event")
