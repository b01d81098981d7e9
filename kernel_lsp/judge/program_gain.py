"""The gain of the program that a workload was captured from: weights of its cases, and Amdahl's law."""

import math
from collections.abc import Sequence

from kernel_lsp.judge.record import Record
from kernel_lsp.workload.capture import read_capture
from kernel_lsp.workload.spec import WorkloadFile


class ProgramGain(Record):
    """The gain of a program.

    Attributes:
        program: its name.
        function: the captured function, which launches the kernel.
        weights: for each timed case its part of the baseline's time, calls x time of a launch; their sum is 1.
        speedup: baseline over candidate, of the weighted sums of their times.
        interval: 95 % interval of `speedup`.
        share: the timed cases' part, 0 to 1, of the program's time when it was captured: of its GPU time if `on_gpu`,
            else of the *host* time in functions that launch kernels; None if the capture does not say.
        whole: speedup of all of that time; None without `share`.
        whole_interval: 95 % interval of `whole`, for the share as it is.
        on_gpu: True if `share` and `whole` are of GPU time.
    """

    program: str
    function: str
    weights: tuple[float, ...]
    speedup: float
    interval: tuple[float, float]
    share: float | None = None
    whole: float | None = None
    whole_interval: tuple[float, float] | None = None
    on_gpu: bool = False


def calls_of_cases(workload: WorkloadFile) -> tuple[int, ...]:
    """Return the number of calls of each case of a captured workload; nothing for a written one."""
    if not workload.captured:
        return ()
    return tuple(case.count for case in read_capture(workload.source.text, workload.source.path).cases)


def amdahl(share: float, factor: float) -> float:
    """Return the speedup of a whole if a `share` of its time becomes `factor` times as fast (Amdahl, AFIPS 1967)."""
    return 1 / (1 - share * (1 - 1 / factor))


def weighted_blocks(per_case: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Return one series from the blocks of several cases: ln of the ratio of the weighted sums of B and A.

    Args:
        per_case: for each case ln(B/A) of each block; all of the same length.
        weights: for each case its part of A's time; their sum is 1.
    """
    blocks = zip(*per_case, strict=True)
    return [math.log(math.fsum(w * math.exp(d) for w, d in zip(weights, block, strict=True))) for block in blocks]
