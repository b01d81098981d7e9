"""The errors that are allowed, in units of rounding: the baseline's own, and never less than an honest sum's.

**Model.** Adding n terms in floating point, in any order, is off by at most (n - 1) u times the sum of magnitudes, u
being half of eps (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2), and hardly ever by
more than a small constant times sqrt(n) u (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis,
SIAM J. Sci. Comput. 41, 2019). A loop over n normal terms rounds partial sums of size sqrt(k), which makes 0.3 n u
together, where the whole sum is sqrt(n) large: 0.08 sqrt(n) units, RMS.

**Measured** (`tests/bench/summation_errors`, float32, 256 sums of normal terms each, largest and RMS error in units):

| terms | one after another | 256 threads and a tree | pairs | Kahan | rounded to TF32 | in float16 |
| --- | --- | --- | --- | --- | --- | --- |
| 10 | 1.3, 0.27 | 0.9, 0.23 | 0.7, 0.21 | 0.5, 0.15 | 3970, 1127 | 6890, 2201 |
| 1,000 | 7.7, 2.4 | 1.8, 0.49 | 1.7, 0.48 | 0.5, 0.16 | 5563, 1334 | 85950, 19790 |
| 100,000 | 107, 25 | 7.9, 2.0 | 2.0, 0.63 | 0.4, 0.16 | 3906, 1148 | 768400, 188600 |
| 1,000,000 | 293, 74 | 15, 5.9 | 2.0, 0.63 | 0.5, 0.15 | 5217, 1204 | 1813000, 544000 |

That is so while partial sums grow as sqrt(k) does. Of terms that are sorted and have both signs they are far larger
than what is left of them in the end: 12 times for 768 uniform terms, where a loop was 135 units off, 34 RMS. Then each
addition rounds by up to half of eps times the largest of them, evenly, which is eps / sqrt(12) of it; n of them
together by 0.29 sqrt(n) units times that growth, RMS.

So the floors are those of a loop, and what is computed in less precision stays far above them. Of positive terms a loop
is less far off (18, 6.4 for 10,000), up to where the last bits of the partial sum are as large as terms are, which are
lost then: 122, 74 for 100,000 squares and 2036, 1861 for a million. Only a baseline that does that too allows it.
"""

import math
import sys
from dataclasses import dataclass

import torch

from kernel_lsp import policy
from kernel_lsp.device.shared_buffer import dtype_name

SUMMED_IN = (torch.float32, torch.float64)
"""Types that sums are made in; those of narrower outputs are rounded afterwards, which hides their errors."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest and the root-mean-square error allowed, in units."""

    max: float
    rms: float


@dataclass(frozen=True, slots=True)
class Sums:
    """How the elements of an output were computed.

    Attributes:
        terms: from how many each element is made.
        elements: how many there are.
        growth: by how much the largest partial sum exceeds the last one; 0 where it is as of terms in any order.
    """

    terms: float = 1.0
    elements: int = sys.maxsize
    growth: float = 0.0


EXACT = Bounds(0.0, 0.0)
SINGLE = Sums()
"""Many elements of one term each."""


def table_bounds(dtype: torch.dtype, *, whole_model: bool = False) -> Bounds:
    """Return the errors allowed to a baseline if nothing better is known: by type, or for a whole model."""
    if not dtype.is_floating_point:
        return EXACT
    share = policy.TABLE_TOLERANCES.get(dtype_name(dtype), policy.OTHER_TOLERANCE)
    largest, rms = (policy.MODEL_MAX_TOLERANCE, policy.MODEL_RMS_TOLERANCE) if whole_model else (share, share)
    eps = torch.finfo(dtype).eps
    return Bounds(max(largest / eps, policy.FLOOR_MAX_UNITS), max(rms / eps, policy.FLOOR_MAX_UNITS))


def relative_bounds(
    baseline: Bounds,
    factor: float,
    dtype: torch.dtype,
    slack: float = 1.0,
    *,
    sums: Sums = SINGLE,
    plain: bool = False,
    coarse: bool = False,
) -> Bounds:
    """Return the errors allowed to a candidate: `factor` times the baseline's, or those of honest sums if larger.

    Args:
        baseline: the baseline's own largest and RMS error.
        factor: how much worse than the baseline a candidate may be.
        dtype: type of the output; integers and bools must be equal.
        slack: how many times over all of it holds, where the baseline is more exact than it would be on a GPU.
        sums: how the output came about.
        plain: True where the baseline is PyTorch alone, whose libraries add up in parts.
        coarse: True for inputs of a coarse family.
    """
    if not dtype.is_floating_point:
        return EXACT
    floor = floors(dtype, sums, wide=coarse or (plain and dtype in SUMMED_IN))
    largest = min(slack * factor * baseline.max, sys.float_info.max)  # an infinite error is always wrong
    return Bounds(
        max(floor.max, slack * policy.FLOOR_MAX_UNITS, largest),
        max(floor.rms, slack * max(policy.FLOOR_RMS_UNITS, factor * baseline.rms)),
    )


def floors(dtype: torch.dtype, sums: Sums, *, wide: bool) -> Bounds:
    """Return the errors that a candidate may always have, whatever the baseline's are; larger ones if `wide`.

    With few elements the RMS error is a matter of chance: the largest that occurs once in a million times is allowed.
    The RMS bound is never stricter than the bound on a single element would be for that element alone.
    """
    narrow = (policy.FLOOR_MAX_UNITS, policy.FLOOR_RMS_UNITS)
    largest, rms = policy.WIDE_FLOORS_UNITS.get(dtype_name(dtype), narrow) if wide else narrow
    if dtype in SUMMED_IN:
        root = math.sqrt(min(sums.terms, policy.FLOOR_MOST_TERMS))
        largest, rms = max(largest, policy.FLOOR_MAX_BY_ROOT * root), max(rms, policy.FLOOR_RMS_BY_ROOT * root)
        grown = policy.GROWN_RMS_BY_ROOT * root * sums.growth
        largest, rms = max(largest, policy.RMS_SPREAD_SIGMAS * grown), max(rms, grown)
    if dtype is torch.float32 and sums.terms > 1:
        largest = max(largest, policy.FLOOR_PARTS_UNITS)
    return Bounds(largest, max(rms, min(largest, rms * rms_spread(sums.elements))))


def rms_spread(elements: int) -> float:
    """Return the factor by which the RMS of n normal errors exceeds their standard deviation once in a million times.

    The sum of their squares is distributed as chi-squared (approximation of Wilson and Hilferty, 1931).
    """
    share = 2 / (9 * max(elements, 1))
    return (1 - share + policy.RMS_SPREAD_SIGMAS * math.sqrt(share)) ** 1.5
