"""Reads and adds up the GPU times that the recorder in a program's processes wrote."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from kernel_lsp.compiler.machine_code.symbols import declared_name, kernel_name
from kernel_lsp.source.python import is_python
from kernel_lsp.workload.capture import Capture

_SUFFIX = ".device.json"


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """All launches of one kernel that ended.

    Attributes:
        symbol: its name in the machine code.
        name: the same as in C++, with namespaces and template arguments.
        launches: number of launches.
        in_graphs: number of those that CUDA graphs made.
        seconds: GPU time, summed; kernels that ran side by side count in full.
        least: the shortest launch, in seconds.
        most: the longest one.
        shapes: number of different grids and blocks.
    """

    symbol: str
    name: str
    launches: int
    in_graphs: int
    seconds: float
    least: float
    most: float
    shapes: int

    @property
    def plain_name(self) -> str:
        """Return `name` without namespaces and template arguments."""
        return declared_name(self.name).rpartition("::")[2]


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """The GPU time of a program.

    Attributes:
        kernels: most GPU time first.
        device: the GPU's name; empty if it is not known.
        processes: number of processes that used CUDA.
        span: from the first launch to the end of the last one, in seconds; of several processes the longest.
        unfinished: number of launches whose end was not seen.
        why: why processes have no times, each reason once.
        snapshot_why: why there is no snapshot, each reason once.
        sampled: True if times are of some launches of Triton's kernels, between two events, and of no other kernel.
    """

    kernels: tuple[DeviceKernel, ...] = ()
    device: str = ""
    processes: int = 0
    span: float = 0.0
    unfinished: int = 0
    why: tuple[str, ...] = ()
    snapshot_why: tuple[str, ...] = ()
    sampled: bool = False

    @property
    def seconds(self) -> float:
        """Return the GPU time of all kernels."""
        return sum(kernel.seconds for kernel in self.kernels)

    def kernels_of(self, capture: Capture) -> tuple[DeviceKernel, ...]:
        """Return the kernels that a captured function launches: Triton's by their symbols, of CUDA files by their names
        in the text.
        """
        if is_python(Path(capture.kernel)):
            return tuple(kernel for kernel in self.kernels if kernel.symbol in capture.kernels)
        names = {name.rpartition("::")[2] for name in capture.kernels}
        return tuple(kernel for kernel in self.kernels if kernel.plain_name in names)


def read_device(folder: Path) -> DeviceRecord:
    """Return the sums of all records in a folder; one that cannot be read is left out."""
    found, kernels = DeviceRecord(), dict[str, DeviceKernel]()
    for document in _documents(folder):
        of_process = dict[str, DeviceKernel]()
        for one in document["kernels"]:
            _add(of_process, _kernel(one))
        for kernel in of_process.values():
            _add(kernels, kernel, same_shapes=True)
        found = replace(
            found,
            device=found.device or document["device"],
            processes=found.processes + 1,
            span=max(found.span, document["span_ns"] / 1e9),
            unfinished=found.unfinished + document["unfinished"],
            why=_with(found.why, document["why"]),
            snapshot_why=_with(found.snapshot_why, document["snapshot_why"]),
        )
    return replace(found, kernels=tuple(sorted(kernels.values(), key=lambda one: (-one.seconds, one.symbol))))


def sampled_record(read: DeviceRecord, events: Iterable[Mapping[str, Sequence[float]]]) -> DeviceRecord:
    """Return a record with the times between events, of processes, in the place of times that are not there.

    Args:
        read: the record.
        events: of each process kernel -> launches, and mean, shortest and longest in seconds of those that were timed.
    """
    kernels = dict[str, DeviceKernel]()
    for of_process in events:
        for name, (launches, mean, least, most) in of_process.items():
            _add(kernels, DeviceKernel(name, name, int(launches), 0, launches * mean, least, most, shapes=0))
    if read.kernels or not kernels:
        return read
    ranked = sorted(kernels.values(), key=lambda one: (-one.seconds, one.symbol))
    return replace(read, kernels=tuple(ranked), sampled=True)


def launches_of(folder: Path, symbol: str, grid: Sequence[int], block: Sequence[int]) -> tuple[int, int, float, float]:
    """Return the number of launches of a kernel, that of those with this grid and block, the GPU seconds of the latter,
    and those of all kernels, by the records in a folder.
    """
    launches, same, seconds, whole = 0, 0, 0.0, 0.0
    for document in _documents(folder):
        for one in document["kernels"]:
            whole += one["ns"] / 1e9
            if one["symbol"] != symbol:
                continue
            launches += one["launches"]
            if [*grid] == one["grid"] and [*block] == one["block"]:
                same, seconds = same + one["launches"], seconds + one["ns"] / 1e9
    return launches, same, seconds, whole


def _documents(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        with suppress(OSError, ValueError):
            yield cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))


def _kernel(one: Mapping[str, Any]) -> DeviceKernel:
    times = (one["ns"] / 1e9, one["least_ns"] / 1e9, one["most_ns"] / 1e9)
    return DeviceKernel(one["symbol"], kernel_name(one["symbol"]), one["launches"], one["in_graphs"], *times, shapes=1)


def _add(kernels: dict[str, DeviceKernel], one: DeviceKernel, *, same_shapes: bool = False) -> None:
    """Add launches. Two processes of a program mostly launch the same shapes, so of these the larger number counts."""
    known = kernels.get(one.symbol)
    if known is None:
        kernels[one.symbol] = one
        return
    kernels[one.symbol] = replace(
        known,
        launches=known.launches + one.launches,
        in_graphs=known.in_graphs + one.in_graphs,
        seconds=known.seconds + one.seconds,
        least=min(known.least, one.least),
        most=max(known.most, one.most),
        shapes=max(known.shapes, one.shapes) if same_shapes else known.shapes + one.shapes,
    )


def _with(reasons: tuple[str, ...], more: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*reasons, more))) if more else reasons
