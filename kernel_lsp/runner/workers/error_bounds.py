"""Errors that are allowed, in units of rounding: the baseline's own, and never less than an honest sum's.

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

So the floors are those of a loop, and what is computed in less precision stays far above them. Of positive terms a loop
is less far off (18, 6.4 for 10,000), up to where the last bits of the partial sum are as large as terms are, which are
lost then: 122, 74 for 100,000 squares and 2036, 1861 for a million. Only a baseline that does that too allows it.
"""

import math
import sys
from dataclasses import dataclass

import torch

FLOOR_MAX = 4.0
"""Units that a single element may always be off by: a few roundings, and a function of a library's last digits."""
FLOOR_RMS = 1.0
"""Units that all elements together may always be off by, as a root mean square."""
MAX_BY_ROOT = 0.75
"""Units by the root of the number of terms: the largest error among a million loops was 0.69 and 0.72 (as above)."""
RMS_BY_ROOT = 0.1
"""Units by the root of the number of terms: the RMS error of a loop was 0.07 to 0.09 (table above)."""
MOST_TERMS = 1 << 20
"""Terms beyond which floors grow no more: the RMS floor is 102 units then, where TF32 is a thousand off."""
WIDER = {
    torch.float64: (128.0, 32.0),
    torch.float32: (128.0, 32.0),
    torch.float16: (32.0, 8.0),
    torch.bfloat16: (8.0, 2.0),
}
"""Floors (largest, RMS) in units for a coarse family, and beside library code for types that sums are made in.

Where all values lie in the tail of a function, or equal ones make every rounding go the same way, honest versions were
seen 62 units off (RMS 10) in float32 and 18 (RMS 4.5) in float16; beside a library a loop over a million terms 66.
"""
SPREAD_SIGMAS = 4.75
"""Standard deviations that a normal number exceeds once in a million times."""
TABLE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""Relative errors that a baseline may have where nothing better is known: KernelBench v0.2, per type."""
TABLE_OTHER = 1e-1
"""The same for types that are not in that table, which have 8 bits or fewer."""
MODEL_MAX, MODEL_RMS = 1.0, 1e-1
"""Relative errors (largest, RMS) that a whole model may have: cuDNN's convolutions round factors to TF32, 5e-4 off.

That grows from layer to layer, most of all where few samples are normalised, and among millions of elements a few
cancel, which may be off by as much as they are large.
"""
SUMMED_IN = (torch.float32, torch.float64)
"""Types that sums are made in; those of narrower outputs are rounded afterwards, which hides their errors."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest and the root-mean-square error allowed, in units."""

    max: float
    rms: float


@dataclass(frozen=True, slots=True)
class Sums:
    """How an output came about: from how many terms each element is made, and how many elements there are."""

    terms: float = 1.0
    elements: int = sys.maxsize


EXACT = Bounds(0.0, 0.0)
SINGLE = Sums()
"""Many elements of one term each."""


def table_bounds(dtype: torch.dtype, *, whole_model: bool = False) -> Bounds:
    """Return what a baseline may be off by where nothing better is known: `TABLE`, or for a whole model `MODEL_MAX`."""
    if not dtype.is_floating_point:
        return EXACT
    share = TABLE.get(dtype, TABLE_OTHER)
    largest, rms = (MODEL_MAX, MODEL_RMS) if whole_model else (share, share)
    eps = torch.finfo(dtype).eps
    return Bounds(max(largest / eps, FLOOR_MAX), max(rms / eps, FLOOR_MAX))


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
    """Return what a candidate may be off by: `factor` times the baseline's error, or what honest sums are off by.

    Args:
        baseline: the baseline's own largest and RMS error.
        factor: how much worse than the baseline a candidate may be.
        dtype: type of the output; integers and bools must be equal.
        slack: how many times over all of it holds, where the baseline is more exact than it would be on a GPU.
        sums: how the output came about.
        plain: True where the baseline is PyTorch alone, whose libraries add up in parts; see `WIDER`.
        coarse: True for inputs of a coarse family; see `WIDER`.
    """
    if not dtype.is_floating_point:
        return EXACT
    floor = floors(dtype, sums, wide=coarse or (plain and dtype in SUMMED_IN))
    largest = min(slack * factor * baseline.max, sys.float_info.max)  # an infinite error is wrong in any case
    return Bounds(
        max(floor.max, slack * FLOOR_MAX, largest), max(floor.rms, slack * max(FLOOR_RMS, factor * baseline.rms))
    )


def floors(dtype: torch.dtype, sums: Sums, *, wide: bool) -> Bounds:
    """Return what a candidate may be off by whatever the baseline does, at least what `WIDER` says where `wide`.

    Of few elements the RMS error is a matter of chance: the largest that comes up once in a million times is allowed,
    and it is never a stricter bound than that for single elements is for one alone.
    """
    largest, rms = WIDER.get(dtype, (FLOOR_MAX, FLOOR_RMS)) if wide else (FLOOR_MAX, FLOOR_RMS)
    if dtype in SUMMED_IN:
        root = math.sqrt(min(sums.terms, MOST_TERMS))
        largest, rms = max(largest, MAX_BY_ROOT * root), max(rms, RMS_BY_ROOT * root)
    return Bounds(largest, max(rms, min(largest, rms * rms_spread(sums.elements))))


def rms_spread(elements: int) -> float:
    """Return by how much the RMS of so many normal errors exceeds their standard deviation once in a million times.

    The sum of their squares is distributed as chi-squared (approximation of Wilson and Hilferty, 1931).
    """
    share = 2 / (9 * max(elements, 1))
    return (1 - share + SPREAD_SIGMAS * math.sqrt(share)) ** 1.5
