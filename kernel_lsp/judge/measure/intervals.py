"""Blocks in a few numbers, and the intervals that hold the true difference of two kernels.

Everything here is pure: numbers in, frozen records out. `judge.measure.statistics` decides by these intervals.

**`half_width`** makes an interval that may be looked at after every block and stopped on, which ordinary confidence
intervals do not survive. It is the confidence sequence of the Gaussian mixture t-test: with t = sqrt(n) mean / s and
the prior N(0, g sigma^2) on the effect, the Bayes factor

    (1 + n g)^(-1/2) * [(1 + t^2 / (n - 1)) / (1 + t^2 / ((n - 1) (1 + n g)))]^(n / 2)

is a test martingale under "no effect", whatever sigma is, so by Ville's inequality it exceeds 1/alpha with a
probability of at most alpha over all n together; solving for t gives `half_width` in closed form. As n grows it
becomes Robbins' normal mixture, the boundary behind the asymptotic confidence sequences of Waudby-Smith et al.
That boundary with the small-sample factor t(1 - alpha / 2, n - 1) / z(1 - alpha / 2) was tried first: looked at from
the 4th to the 60th Gaussian block it missed the truth in 5.7 % of the series for alpha = 5 %, and in 0.67 % for
alpha = 5 % / 16 = 0.31 %, twice what a race of 16 candidates allows. The exact form missed in 2.0 % and 0.33 %; where
noise is high it takes about a quarter more blocks. The program `tests/bench/paired_verdict_simulation.py` measures
both.

**Winsorising** tames the spikes that timers see: values beyond median +- 3 * 1.4826 * MAD are drawn in to that
border. With g values drawn in, the deviation is scaled by (n - 1) / (n - 1 - g), as Tukey and McLaughlin do; without
it the t interval of 10 Gaussian blocks covers 93.9 % instead of 94.7 %.

Sources:
    - Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas: Time-uniform central limit theory and asymptotic confidence
      sequences, arXiv 2103.06476.
    - Robbins: Statistical methods related to the law of the iterated logarithm, Ann. Math. Statist. 41 (1970).
    - Lai: On confidence sequences, Ann. Statist. 4 (1976); Wang, Ramdas: Anytime-valid t-tests and confidence
      sequences for Gaussian means with unknown variance, arXiv 2310.03722.
    - Goenen, Johnson, Lu, Westfall: The Bayesian two-sample t test, Am. Stat. 59 (2005), for the Bayes factor.
    - Tukey, McLaughlin: Less vulnerable confidence and significance procedures for location, Sankhya A 25 (1963).
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

from kernel_lsp.judge.measure.student_t import t_quantile
from kernel_lsp.policy import (
    ALPHA,
    AUTOCORRELATION_FROM_BLOCKS,
    BOOTSTRAP_RESAMPLES,
    DETECTION_POWER,
    LEAST_DEVIATION,
    MAD_TO_SIGMA,
    MOST_AUTOCORRELATION,
    PRIOR_VARIANCE,
    WINSOR_FROM_BLOCKS,
    WINSOR_SIGMAS,
)


@dataclass(frozen=True, slots=True)
class Summary:
    """Blocks in three numbers: robust mean of ln(B/A), deviation of one block, number of blocks."""

    mean: float
    deviation: float
    n: int


@dataclass(frozen=True, slots=True)
class Interval:
    """Closed interval of ln(B/A), or of a ratio."""

    lower: float
    upper: float

    @property
    def ratio(self) -> "Interval":
        """Return the interval of B/A, candidate time over baseline time, for an interval of ln(B/A)."""
        return Interval(_exp(self.lower), _exp(self.upper))

    @property
    def speedup(self) -> "Interval":
        """Return the interval of A/B, how many times faster the candidate is, for an interval of ln(B/A)."""
        return Interval(_exp(-self.upper), _exp(-self.lower))


def summarise(d: Sequence[float], floor: float = LEAST_DEVIATION) -> Summary:
    """Return the winsorised mean and deviation of blocks, given in the order in which they ran.

    From 6 blocks on outliers are drawn in, from 12 on a positive lag-1 autocorrelation r (at most 0.6) widens the
    deviation by sqrt((1 + r) / (1 - r)): slow drift makes blocks tell less than their number.

    Args:
        d: at least one ln(B/A).
        floor: least deviation, and least MAD, to believe in.
    """
    n = len(d)
    if n == 1:
        return Summary(d[0], math.inf, 1)
    values, drawn_in = _winsorised(d, floor)
    mean = math.fsum(values) / n
    errors = [value - mean for value in values]
    squares = math.fsum(error * error for error in errors)
    deviation = math.sqrt(squares / (n - 1)) * (n - 1) / (n - 1 - drawn_in)
    if n >= AUTOCORRELATION_FROM_BLOCKS and squares > 0:
        r = math.fsum(a * b for a, b in pairwise(errors)) / squares
        r = min(max(r, 0.0), MOST_AUTOCORRELATION)
        deviation *= math.sqrt((1 + r) / (1 - r))
    return Summary(mean, max(deviation, floor), n)


def half_width(deviation: float, n: int, alpha: float = ALPHA) -> float:
    """Return half the width of the confidence sequence after `n` blocks; mean +- it holds at all looks with 1 - alpha.

    Infinite while n is too small for alpha (under 4 blocks for 5 %, under 5 for 5 % / 16).
    """
    if n < 2:
        return math.inf
    q = 1 + n * PRIOR_VARIANCE
    a = (math.sqrt(q) / alpha) ** (2 / n)
    if a >= q:
        return math.inf
    return deviation * math.sqrt((n - 1) / n * (a - 1) / (1 - a / q))


def half_width_once(deviation: float, n: int, alpha: float = ALPHA) -> float:
    """Return half the width of the t interval of `n` blocks, at least 2, for a number of blocks fixed beforehand."""
    return t_quantile(1 - alpha / 2, n - 1) * deviation / math.sqrt(n)


def min_detectable(deviation: float, n: int, alpha: float = ALPHA) -> float:
    """Return the smallest |ln(B/A)| whose interval excludes 0 after `n` blocks with a probability of 95 %."""
    return half_width(deviation, n, alpha) + NormalDist().inv_cdf(DETECTION_POWER) * deviation / math.sqrt(n)


def bootstrap_interval(
    d: Sequence[float], alpha: float = ALPHA, seed: int = 0, floor: float = LEAST_DEVIATION
) -> Interval:
    """Return the percentile interval of the winsorised mean over 2,000 resamples of whole blocks."""
    rng = random.Random(seed)
    means = sorted(
        math.fsum(_winsorised(rng.choices(d, k=len(d)), floor)[0]) / len(d) for _ in range(BOOTSTRAP_RESAMPLES)
    )
    tail = int(alpha / 2 * BOOTSTRAP_RESAMPLES)
    return Interval(means[tail], means[-1 - tail])


def _winsorised(d: Sequence[float], floor: float) -> tuple[list[float], int]:
    """Return the values with outliers clipped to median +- 3 robust deviations, and the number of clipped values."""
    if len(d) < WINSOR_FROM_BLOCKS:
        return list(d), 0
    centre = _median(d)
    reach = WINSOR_SIGMAS * max(MAD_TO_SIGMA * _median([abs(value - centre) for value in d]), floor)
    low, high = centre - reach, centre + reach
    return [min(max(value, low), high) for value in d], sum(not low <= value <= high for value in d)


def _median(values: Sequence[float]) -> float:
    """Return the median, faster than `statistics.median`: the bootstrap needs four thousand."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def speedup_of(mean: float) -> float:
    """Return how many times faster the candidate is by a mean of ln(B/A); infinite where that overflows."""
    return _exp(-mean)


def _exp(x: float) -> float:
    """Return exp(x), infinite where it overflows."""
    return math.exp(x) if x < 700 else math.inf
