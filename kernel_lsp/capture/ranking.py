"""Ranks a program's kernels by their share of its time: of GPU time where that was recorded, else of host time."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.capture.device_record import DeviceKernel
from kernel_lsp.capture.program_record import LaunchedKernel, ProgramRecord
from kernel_lsp.judge.program_gain import amdahl
from kernel_lsp.workload.capture import Capture

TRIED = 1.5
"""Assumed speedup of a kernel, to estimate what the program would gain."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One kernel.

    Attributes:
        kernel: its record where it was launched.
        share: its part, 0 to 1, of the program's GPU time; without GPU times that of its function, of the host time
            within functions that launch kernels; None if not recorded.
        gain: speedup of all of that if this were `TRIED` times as fast; None as `share`.
        on_device: its record on the GPU; None if it has none.
    """

    kernel: LaunchedKernel
    share: float | None
    gain: float | None
    on_device: DeviceKernel | None = None


def ranking(seen: ProgramRecord) -> tuple[Ranked, ...]:
    """Return every kernel, largest share first. Of host time, the kernels of one function share its part."""
    if seen.on_device.kernels:
        return tuple(sorted(_on_device(seen), key=lambda one: -(one.share or 0)))
    total = sum({(k.file, k.function or k.name): k.seconds for k in seen.kernels}.values())
    return tuple(_ranked(kernel, kernel.seconds, total) for kernel in seen.kernels)


def _on_device(seen: ProgramRecord) -> Iterator[Ranked]:
    """Yield the kernels seen on the GPU, each with what launched it if that is known, then what was not seen.

    Of torch extensions the recorded launches are calls of functions, whose kernels stand for them.
    """
    times = {kernel.symbol: kernel for kernel in seen.on_device.kernels}
    names = Counter(kernel.name for kernel in seen.kernels)
    joined = {kernel.name: kernel for kernel in seen.kernels if names[kernel.name] == 1 and kernel.name in times}
    launching = {timed.symbol: capture for capture in seen.captures for timed in seen.on_device.kernels_of(capture)}
    for symbol, timed in times.items():
        kernel = joined.get(symbol) or _launched(timed, launching.get(symbol))
        yield _ranked(kernel, timed.seconds, seen.on_device.seconds, timed)
    shown = {(capture.kernel, capture.function) for capture in launching.values()}
    for kernel in seen.kernels:
        if kernel.name not in joined and (str(Path(kernel.file).resolve()), kernel.function) not in shown:
            yield Ranked(kernel, None, None)


def _launched(timed: DeviceKernel, by: Capture | None) -> LaunchedKernel:
    if by is None:
        return LaunchedKernel(timed.name, launches=timed.launches)
    return LaunchedKernel(timed.name, by.kernel, launches=timed.launches, function=by.function)


def _ranked(kernel: LaunchedKernel, spent: float, total: float, timed: DeviceKernel | None = None) -> Ranked:
    if not spent or not total:
        return Ranked(kernel, None, None, timed)
    return Ranked(kernel, spent / total, amdahl(spent / total, TRIED), timed)
