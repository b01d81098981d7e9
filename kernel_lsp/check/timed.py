"""Measures the times of a file's kernels, case by case, for the repository's baseline.

These are absolute times, which clocks and placement change by a few per cent from one day to the next: they can show
that a kernel became slower, but never that one is faster.
"""

import math
from collections.abc import Sequence
from statistics import median

from kernel_lsp.check.record import CaseTime
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.measure.blocks import warm_up
from kernel_lsp.judge.measure.cases import run_segment, segment_us
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.target import Target
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.workload.spec import WorkloadFile

ROUNDS = 25
_ALPHA = 0.05


async def time_alone(
    pool: Pool, source: SourceFile, workload: WorkloadFile, settings: Settings, gpu: Gpu
) -> tuple[CaseTime, ...]:
    """Return the times of all kernels of a file, while nothing else runs; none where they cannot be timed.

    A file that is right but cannot be timed has nothing to be compared with the baseline.
    """
    language = language_of(source.path, source.text)
    assert language is not None, "only kernel files are checked"
    target = Target(language, source, find_kernels(source.text, source.path), None, workload)
    try:
        return await time_file(pool, target, settings, gpu)
    except KernelLspError:
        return ()


async def time_file(pool: Pool, target: Target, settings: Settings, gpu: Gpu) -> tuple[CaseTime, ...]:
    """Return the time of every case that a judgement times, taken in `ROUNDS` rounds over all of them.

    Raises:
        KernelLspError: the kernel does not build, or cannot be timed.
    """
    session = Session(pool, target, settings, gpu)
    try:
        await session.open()
        measured = session.measured
        if measured is None or not measured.cases:
            return ()
        times: list[list[float]] = [[] for _ in measured.cases]
        await measured.harness.settle()
        async with session.timer():
            await warm_up((measured.baseline,), measured.cases[-1])
            for _ in range(ROUNDS):
                for index, case in enumerate(measured.cases):
                    times[index].append(segment_us(await run_segment(measured.baseline, case)))
        return tuple(
            CaseTime(measured.harness.cases[case.draw.case], median(found), median_interval(found))
            for case, found in zip(measured.cases, times, strict=True)
        )
    finally:
        await session.close()


def median_interval(values: Sequence[float], alpha: float = _ALPHA) -> tuple[float, float]:
    """Return an interval that misses the median with a chance of at most `alpha`, for any distribution.

    The bounds are order statistics: the number of n values below the median is binomial with p = 1/2. With fewer than
    six values it is the whole range.
    """
    ordered = sorted(values)
    count = len(ordered)
    below, rank = 0.0, 0
    while (below := below + math.comb(count, rank) / 2**count) <= alpha / 2:
        rank += 1
    low = max(rank - 1, 0)
    return ordered[low], ordered[count - 1 - low]
