"""Ranks a program's kernels by their share of its time, as far as that was recorded."""

from dataclasses import dataclass

from kernel_lsp.capture.program_record import LaunchedKernel, ProgramRecord
from kernel_lsp.judge.program_gain import amdahl

TRIED = 1.5
"""Assumed speedup of a kernel, to estimate what the program would gain."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One kernel.

    Attributes:
        kernel: its record.
        share: its part, 0 to 1, of the host time within functions that launch kernels; None if not recorded.
        gain: speedup of all of that if this function were `TRIED` times as fast; None as `share`.
    """

    kernel: LaunchedKernel
    share: float | None
    gain: float | None


def ranking(seen: ProgramRecord) -> tuple[Ranked, ...]:
    """Return every kernel, largest share first; the kernels of one function share its part."""
    total = sum({(k.file, k.function or k.name): k.seconds for k in seen.kernels}.values())
    return tuple(_ranked(kernel, total) for kernel in seen.kernels)


def _ranked(kernel: LaunchedKernel, total: float) -> Ranked:
    if not kernel.seconds or not total:
        return Ranked(kernel, None, None)
    share = kernel.seconds / total
    return Ranked(kernel, share, amdahl(share, TRIED))
