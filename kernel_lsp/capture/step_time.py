"""Compares the step times of a program with the original and with a variant. Numbers in, numbers out.

A block is four segments, ABBA or BAAB, and gives one ln(B/A), as in `judge.measure.blocks`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp import policy
from kernel_lsp.judge.measure.intervals import Interval, half_width_once, speedup_of, summarise

_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Step times of both.

    Attributes:
        blocks: number of blocks.
        steps: number of timed steps of either side.
        original_ms: geometric mean of a step's time with the original.
        variant_ms: the same with the variant.
        speedup: `original_ms` over `variant_ms` by the blocks' robust mean.
        interval: 95 % interval of `speedup`; None with fewer blocks than `policy.MIN_BLOCKS`.
    """

    blocks: int
    steps: int
    original_ms: float
    variant_ms: float
    speedup: float
    interval: tuple[float, float] | None


def step_times(segments: Sequence[tuple[str, int, float]]) -> StepTimes | None:
    """Return the step times; None before the first block is whole.

    Args:
        segments: the side (`original`, `variant`), number of steps and seconds of each, in order.
    """
    whole = [segments[at : at + _SEGMENTS] for at in range(0, len(segments) - _SEGMENTS + 1, _SEGMENTS)]
    if not whole:
        return None
    original, variant = ([_mean_log(block, side) for block in whole] for side in ("original", "variant"))
    logs = [b - a for a, b in zip(original, variant, strict=True)]
    found = summarise(logs)
    interval = None
    if found.n >= policy.MIN_BLOCKS:
        # The program chose the number of blocks by its end, not by a look at them.
        half = half_width_once(found.deviation, found.n)
        ratio = Interval(found.mean - half, found.mean + half).speedup
        interval = (ratio.lower, ratio.upper)
    steps = sum(count for block in whole for _, count, _ in block) // 2
    return StepTimes(len(whole), steps, _mean_ms(original), _mean_ms(variant), speedup_of(found.mean), interval)


def _mean_ms(logs: Sequence[float]) -> float:
    return 1e3 * math.exp(math.fsum(logs) / len(logs))


def _mean_log(block: Sequence[tuple[str, int, float]], side: str) -> float:
    logs = [math.log(max(seconds, 1e-9) / steps) for which, steps, seconds in block if which == side]
    return math.fsum(logs) / len(logs)
