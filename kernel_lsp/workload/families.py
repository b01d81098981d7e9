"""Input families: the same case with other values or another layout, to catch kernels that lean on either.

Runner processes only (imports torch). Every family draws from the generator it is given, so that a seed repeats it.
The list follows what published kernel benchmarks were beaten by: answers that are right only for standard normal
data, for aligned contiguous tensors, or without ties, outliers and non-finite values.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Generator, Tensor

from kernel_lsp import policy
from kernel_lsp.workload.leaves import Leaf, Leaves, laid_out_as, own_elements
from kernel_lsp.workload.structure import NONE, Structure, preserve


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies in memory relative to a fresh allocation: first element skipped, every second one used."""

    shifted: bool = False
    strided: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One family; `change` maps the values of a floating-point tensor, integer tensors are left alone.

    It changes inputs, or the weights of a KernelBench problem if it is one `of_weights`. One that is `coarse` looks for
    mistakes of a value's own size: for what it makes of inputs, an honest version may be further off than for others.
    """

    name: str
    change: Callable[[Tensor, Generator], Tensor] | None = None
    layout: Layout = Layout()
    finite: bool = True
    of_weights: bool = False
    coarse: bool = False


def _shifted(x: Tensor, _: Generator) -> Tensor:
    return x * policy.SHIFT_FACTOR + policy.SHIFT_OFFSET


def _large(x: Tensor, _: Generator) -> Tensor:
    return x * (policy.LARGE_FACTOR_FLOAT16 if x.dtype == torch.float16 else policy.LARGE_FACTOR)


def _tiny(x: Tensor, _: Generator) -> Tensor:
    return x * 2.0**policy.TINY_POWER


def _vast(x: Tensor, _: Generator) -> Tensor:
    return _finite_as(x, x * 2.0 ** _range_exponent(x))


def _minute(x: Tensor, _: Generator) -> Tensor:
    return x * 2.0 ** -_range_exponent(x)


def _spiked(x: Tensor, generator: Generator) -> Tensor:
    """One element of each row is huge."""
    if not x.dim():
        return _finite_as(x, x * 2.0**policy.ONE_HUGE_POWER)
    where = torch.randint(x.shape[-1], (*x.shape[:-1], 1), generator=generator, device=x.device)
    return _finite_as(x, x * torch.ones_like(x).scatter_(-1, where, 2.0**policy.ONE_HUGE_POWER))


def _range_exponent(x: Tensor) -> int:
    return policy.LARGE_SCALE_POWER_FLOAT16 if x.dtype == torch.float16 else policy.LARGE_SCALE_POWER


def _finite_as(x: Tensor, changed: Tensor) -> Tensor:
    """Return changed values, the type's largest number where only the change made them infinite."""
    largest = torch.finfo(x.dtype).max
    return torch.where(torch.isinf(x), changed, changed.clamp(-largest, largest))


def _ties(x: Tensor, _: Generator) -> Tensor:
    return torch.round(x * 2) / 2


def _sorted(x: Tensor, _: Generator) -> Tensor:
    return x.sort(dim=-1).values if x.dim() else x


def _outliers(x: Tensor, generator: Generator) -> Tensor:
    """One value in a thousand, and one in eight at the end of each longer dimension.

    A loop that ends too early misses those; among very many terms another one would hardly be missed.
    """
    flat = x.clone().reshape(-1)
    where = _places(flat, flat.numel() // policy.OUTLIERS_ONE_IN, generator)
    flat[where] = flat[where].sign() * policy.OUTLIER_VALUE
    made = flat.reshape(x.shape)
    for dimension in (number for number, size in enumerate(made.shape) if size >= policy.LONG_DIMENSION):
        end = made.select(dimension, -1)
        chosen = torch.rand(end.shape, generator=generator, device=end.device) < 1 / policy.OUTLIERS_AT_ENDS_ONE_IN
        chosen.view(-1)[0] = True
        end.copy_(torch.where(chosen, end.sign() * policy.OUTLIER_VALUE, end))
    return made


def _signed(x: Tensor, generator: Generator) -> Tensor:
    """Whole rows change their sign, so that sums and maxima of them do."""
    if not x.dim():
        return -x
    flip = torch.rand(x.shape[:1], generator=generator, device=x.device) < 0.5
    flip[0] = True
    return torch.where(flip.reshape(-1, *[1] * (x.dim() - 1)), -x, x)


def _alternating(x: Tensor, _: Generator) -> Tensor:
    """2 and 1/2 by turns along each dimension, with the element's sign: products of any row stay exact and near 1."""
    odd = torch.zeros((), dtype=torch.bool, device=x.device)
    for dimension, size in enumerate(x.shape):
        if size > 1:
            own = torch.zeros(size, dtype=torch.bool, device=x.device)
            own[1::2] = True
            odd = odd ^ own.reshape(-1, *[1] * (x.dim() - 1 - dimension))
    powers = torch.full_like(x, 2.0, memory_format=torch.contiguous_format).masked_fill_(odd, 0.5)
    return powers.copysign_(x)


def _above(x: Tensor, _: Generator) -> Tensor:
    """All above 1: a minimum that starts from 0 or 1 is wrong then."""
    return x.abs().mul_(policy.ABOVE_FACTOR).add_(policy.ABOVE_OFFSET)


def _below(x: Tensor, generator: Generator) -> Tensor:
    """All below -1, where there are negative values at all: a maximum that starts from 0 or -1 is wrong then."""
    return _above(x, generator).neg_() if bool((x < 0).any()) else x


def _nonfinite(x: Tensor, generator: Generator) -> Tensor:
    flat = x.clone().reshape(-1)
    values = torch.tensor([math.nan, math.inf, -math.inf] * 2, dtype=x.dtype, device=x.device)
    flat[_places(flat, len(values), generator)] = values
    return flat.reshape(x.shape)


def made_different(x: Tensor) -> Tensor:
    """Values that are all alike, as of a normalisation's weights, made different ones near them; others as they are."""
    if not x.is_floating_point() or not x.numel() or not bool((x == x.flatten()[0]).all()):
        return x
    return x + (x.abs() + 1) * torch.rand(x.shape, device=x.device).to(x.dtype) / 4


def renewed(x: Tensor, generator: Generator) -> Tensor:
    """Weights by values of their own size; those that are all alike, as of a normalisation, become different ones."""
    noise = torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float32).to(x.dtype)
    # No look at the values from here: a GPU would be waited for, between timed blocks.
    alike = (x == x.flatten()[0]).all()
    return torch.where(alike, x + (x.abs() + 1) * noise / 4, x * (0.5 + noise) + x.std(correction=0) * (noise - 0.5))


def _places(flat: Tensor, count: int, generator: Generator) -> Tensor:
    """At least one position; one may be drawn twice."""
    return torch.randint(flat.numel(), (max(count, 1),), generator=generator, device=flat.device)


NORMAL = Family("normal")
VALUE_FAMILIES = (
    NORMAL,
    Family("shifted", _shifted),
    Family("large", _large),
    Family("tiny", _tiny),
    Family("ties", _ties, coarse=True),
    Family("sorted", _sorted, coarse=True),
    Family("outliers", _outliers),
    Family("alternating", _alternating, coarse=True),
    Family("above", _above, coarse=True),
    Family("below", _below, coarse=True),
)
SIGNED = Family("signed", _signed)
"""For KernelBench's problems: their inputs are seldom negative, so that half of a function goes unseen."""
VAST = Family("vast", _vast)
MINUTE = Family("minute", _minute)
SPIKED = Family("spiked", _spiked)
RANGE_FAMILIES = (VAST, MINUTE, SPIKED)
"""Ends of the range of a type: what leaves it on the way shows here, and many baselines do, too."""
NONFINITE = Family("nonfinite", _nonfinite, finite=False)
UNALIGNED = Family("unaligned", layout=Layout(shifted=True))
STRIDED = Family("strided", layout=Layout(strided=True))
WEIGHTS = Family("weights", renewed, of_weights=True)
FAMILIES = {
    family.name: family for family in (*VALUE_FAMILIES, *RANGE_FAMILIES, SIGNED, NONFINITE, UNALIGNED, STRIDED, WEIGHTS)
}


def apply(
    family: Family, leaves: Leaves, generator: Generator, structures: Sequence[Structure] | None = None
) -> Leaves:
    """Return the leaves with the family's values and the structure of their own, each lying in memory as before.

    Integers are left alone, and so are 8-bit floats, on which torch cannot calculate. The family's layout is not
    applied here: whoever owns the memory lays tensors out. Without `structures` leaves have none.
    """
    change = family.change
    if change is None:
        return leaves
    known = [NONE] * len(leaves) if structures is None else structures
    return tuple(
        _changed(change, leaf, generator, structure) if is_changed(leaf) else leaf
        for leaf, structure in zip(leaves, known, strict=True)
    )


def touched(
    leaves: Leaves, fresh: Leaves, generator: Generator, structures: Sequence[Structure] | None = None
) -> Leaves:
    """Return the leaves with some elements of each floating-point tensor taken from `fresh`, another draw of the same.

    A few places are so few that whoever looks at samples takes the tensor for the same. A row, or as much of one as is
    still little of the whole, makes a difference that no tolerance for rounding covers.
    """

    def touch(leaf: Leaf, other: Leaf, structure: Structure) -> Leaf:
        if not (is_changed(leaf) and isinstance(other, Tensor)) or leaf.shape != other.shape:
            return leaf
        own = own_elements(leaf)
        flat = own.flatten().clone()
        values = other[tuple(slice(extent) for extent in own.shape)].flatten().to(flat.dtype)
        few = _places(flat, max(policy.TOUCHED_LEAST, flat.numel() // policy.TOUCHED_ONE_IN), generator)
        places = torch.cat([few, _stretch(own, generator)])
        flat[places] = values[places]
        return laid_out_as(preserve(structure, own, flat.view(own.shape)), leaf)

    known = [NONE] * len(leaves) if structures is None else structures
    return tuple(touch(*each) for each in zip(leaves, fresh, known, strict=True))


def is_changed(leaf: Leaf) -> TypeGuard[Tensor]:
    """Return True for what families change: floating-point tensors with elements, on which torch can calculate."""
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.itemsize > 1 and leaf.numel() > 0


def _stretch(own: Tensor, generator: Generator) -> Tensor:
    """Places side by side in a flattened tensor."""
    row, count = own.shape[-1] if own.dim() else 1, own.numel()
    length = min(row, max(policy.TOUCHED_LEAST, count // policy.TOUCHED_STRETCH_ONE_IN))
    starts, step = (count // row, row) if length == row else (count - length + 1, 1)
    start = torch.randint(starts, (1,), generator=generator, device=own.device) * step
    return start + torch.arange(length, device=own.device)


def _changed(
    change: Callable[[Tensor, Generator], Tensor], x: Tensor, generator: Generator, structure: Structure
) -> Tensor:
    own = own_elements(x)
    return laid_out_as(preserve(structure, own, change(own, generator)), x)
