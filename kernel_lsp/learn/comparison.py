"""Compare an adapter with its base on kernels that neither was trained on. Pure but for the file of the outcome.

The kernel is the unit: an adapter that is better on one kernel in sixteen answers is not better on others for that. A
difference is that of the two means on one kernel, and its interval is Student's over the kernels.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from kernel_lsp.judge.measure.student_t import t_quantile
from kernel_lsp.judge.verdict import Record

LEAST_KERNELS = 6
"""Fewer say nothing: if both were the same, all signs of five differences would agree in one case of 16."""
FAST = (1.0, 1.5, 2.0)
"""Thresholds of fast_p: the share of trajectories whose best answer is right and more than p times as fast
(Ouyang et al., arXiv 2502.10517, section 3.3)."""

_LEVEL = 0.95
_FILE = "comparison.json"


class TrajectoryResult(Record):
    """The outcome of one trajectory.

    Attributes:
        right: True if one of its answers was right by a full judgement.
        speedup: of the fastest answer with the verdict FASTER; 1 if there is none, for the user's kernel stays then.
        tokens: of all its answers.
    """

    right: bool
    speedup: float
    tokens: int


class KernelResults(Record):
    """The trajectories of both sides on one kernel; `kernel` is its file, as it was named."""

    kernel: str
    base: tuple[TrajectoryResult, ...]
    adapter: tuple[TrajectoryResult, ...]


class Measure(Record):
    """One figure of both sides.

    Attributes:
        name: of the figure.
        base, adapter: its mean over kernels.
        difference: adapter less base; for the geometric mean, adapter over base.
        interval: its 95 % interval over kernels; None of one kernel.
    """

    name: str
    base: float
    adapter: float
    difference: float
    interval: tuple[float, float] | None


class AdapterComparison(Record):
    """The outcome of comparing an adapter with its base.

    Attributes:
        adapter: name.
        content: digest of its weights.
        gpu: that kernels were timed on; None where nothing was timed.
        tokens: that each trajectory could spend, on both sides.
        samples: trajectories on each kernel, on each side.
        kernels: the results.
        measures: what they come to: share right, and if they were timed share faster, fast_p and geometric mean.
    """

    adapter: str
    content: str
    gpu: str | None
    tokens: int
    samples: int
    kernels: tuple[KernelResults, ...]
    measures: tuple[Measure, ...]

    @property
    def enough(self) -> bool:
        """True if there are enough kernels to call one side better."""
        return len(self.kernels) >= LEAST_KERNELS

    @property
    def deciding(self) -> Measure:
        """Return the measure that decides: the geometric mean of the speedup, untimed the share right."""
        return self.measures[-1]

    @property
    def better(self) -> bool:
        """True if the adapter is better beyond doubt: the paired interval of the deciding measure is above no gain."""
        neutral = 1.0 if self.gpu else 0.0
        interval = self.deciding.interval
        return self.enough and interval is not None and interval[0] > neutral


def compare(
    kernels: Sequence[KernelResults], *, adapter: str, content: str, gpu: str | None, tokens: int
) -> AdapterComparison:
    """Return the comparison of an adapter with its base.

    Args:
        kernels: the results; as many trajectories on either side of each kernel.
        adapter: name.
        content: digest of its weights.
        gpu: that kernels were timed on; None where nothing was timed.
        tokens: that each trajectory could spend.
    """
    measures = [_measure("right", kernels, lambda one: float(one.right))]
    if gpu is not None:
        for p in FAST:
            name = "faster" if p == 1.0 else f"fast_{p:g}"
            measures.append(_measure(name, kernels, lambda one, p=p: float(one.speedup > p)))
        measures.append(_measure("speedup", kernels, lambda one: math.log(one.speedup), geometric=True))
    samples = len(kernels[0].base)
    return AdapterComparison(
        adapter=adapter,
        content=content,
        gpu=gpu,
        tokens=tokens,
        samples=samples,
        kernels=tuple(kernels),
        measures=tuple(measures),
    )


def write_comparison(folder: Path, comparison: AdapterComparison) -> None:
    """Keep a comparison beside its adapter."""
    draft = folder / f"{_FILE}.draft"
    draft.write_text(comparison.model_dump_json(indent=1), encoding="utf-8")
    draft.replace(folder / _FILE)


def read_comparison(folder: Path, content: str) -> AdapterComparison | None:
    """Return the comparison of an adapter's present content; None if there is none."""
    try:
        found = AdapterComparison.model_validate_json((folder / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
    return found if found.content == content else None


def _measure(
    name: str,
    kernels: Sequence[KernelResults],
    figure: Callable[[TrajectoryResult], float],
    *,
    geometric: bool = False,
) -> Measure:
    shown = math.exp if geometric else float
    base = [_mean([figure(one) for one in kernel.base]) for kernel in kernels]
    tuned = [_mean([figure(one) for one in kernel.adapter]) for kernel in kernels]
    differences = [after - before for before, after in zip(base, tuned, strict=True)]
    interval = _interval(differences)
    return Measure(
        name=name,
        base=shown(_mean(base)),
        adapter=shown(_mean(tuned)),
        difference=shown(_mean(differences)),
        interval=None if interval is None else (shown(interval[0]), shown(interval[1])),
    )


def _interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's interval of the mean; None of a single difference."""
    n = len(differences)
    if n < 2:
        return None
    mean = _mean(differences)
    deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in differences) / (n - 1))
    half = t_quantile((1 + _LEVEL) / 2, n - 1) * deviation / math.sqrt(n)
    return mean - half, mean + half


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
