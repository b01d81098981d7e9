"""Choose the kernels of a step by what earlier steps learned from each. Pure: batches in, numbers of kernels out.

A kernel whose answers all earn the same teaches nothing (their advantages are 0), and those that are solved now and
then teach most. So each kernel has a weight, and is drawn about as often as its weight says.
"""

import math
from collections.abc import Sequence

from kernel_lsp.learn.training import TrainingBatch, TrainingSample

FLOOR = 0.1
"""Least weight: a kernel of which nothing is learned now is drawn at least a tenth as often as one never drawn."""
_GROUPS = 2  # the latest ones of a kernel, over which its weight is the mean


def chosen(kernels: Sequence[str], at_once: int, step: int, batches: Sequence[TrainingBatch]) -> list[int]:
    """Return the numbers of a step's kernels.

    In every step each kernel earns its weight; those that have most are drawn, of equals the first, and then have
    nothing. So no kernel is forgotten, and while all weigh the same they are drawn in turn. It depends on nothing but
    the batches before the step: a run that was killed and taken up draws the same.

    Args:
        kernels: as the samples name them.
        at_once: kernels in one step.
        step: from 1.
        batches: of the run; those of this step and later ones do not count.
    """
    at = {batch.step: batch for batch in batches}
    weights = dict.fromkeys(kernels, 1.0)
    spreads: dict[str, list[float]] = {kernel: [] for kernel in kernels}
    earned = dict.fromkeys(range(len(kernels)), 0.0)
    drawn: list[int] = []
    for number in range(1, step + 1):
        for one, kernel in enumerate(kernels):
            earned[one] += weights[kernel]
        drawn = sorted(earned, key=lambda one: (-round(earned[one], 9), one))[:at_once]
        earned |= dict.fromkeys(drawn, 0.0)
        if number in at:
            for kernel, some in by_kernel(at[number]).items():
                if kernel in spreads:
                    spreads[kernel].append(spread(some))
                    weights[kernel] = max(FLOOR, _mean(spreads[kernel][-_GROUPS:]))
    return drawn


def by_kernel(batch: TrainingBatch) -> dict[str, list[TrainingSample]]:
    """Return the samples of a batch by their kernel."""
    found: dict[str, list[TrainingSample]] = {}
    for one in batch.samples:
        found.setdefault(one.kernel, []).append(one)
    return found


def spread(group: Sequence[TrainingSample]) -> float:
    """Return how much a group teaches: the mean size of its advantages.

    That is 0 where all earn the same, 1 where half of the answers earn all of the reward, and never more.
    """
    return _mean([abs(one.advantage) for one in group])


def solved(group: Sequence[TrainingSample]) -> float:
    """Return the share of a group's answers that were paid: the lower, the more difficult is the kernel."""
    return _mean([float(one.score > 0) for one in group])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
