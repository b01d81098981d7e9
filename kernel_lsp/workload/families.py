"""Input families: the same case with other values or another layout, to catch kernels that rely on either.

Runner processes only (imports torch). Every family draws from the generator it is given, so that a seed repeats it.
The list follows known weaknesses of published kernel benchmarks: answers that are right only for standard normal
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
    """The places of tensors relative to fresh allocations; `shared_buffer.lay_out` says what each parameter is."""

    shifted: bool = False
    strided: bool = False
    padded: bool = False
    misaligned: int = 0


@dataclass(frozen=True, slots=True)
class Family:
    """One family; `change` maps the values of a floating-point tensor, and integer tensors are kept.

    It changes inputs or, if `of_weights`, the weights of a KernelBench problem. A `coarse` family looks for errors of
    the order of a value itself: on its inputs even an honest version may have larger rounding errors than on others.
    One `of_largest` changes the tensors with the most elements alone: not a bias or a scale, which each row shares.
    """

    name: str
    change: Callable[[Tensor, Generator], Tensor] | None = None
    layout: Layout = Layout()
    finite: bool = True
    of_weights: bool = False
    coarse: bool = False
    of_largest: bool = False


def _shifted(x: Tensor, _: Generator) -> Tensor:
    return x * policy.SHIFT_FACTOR + policy.SHIFT_OFFSET


def _large(x: Tensor, _: Generator) -> Tensor:
    return x * (policy.LARGE_FACTOR_FLOAT16 if x.dtype == torch.float16 else policy.LARGE_FACTOR)


def _tiny(x: Tensor, _: Generator) -> Tensor:
    return x * 2.0**policy.TINY_POWER


def _vast(x: Tensor, _: Generator) -> Tensor:
    """Scale by a power of 2 that all finite values bear: cut off at the largest number, rows would be constant."""
    largest = float(torch.where(torch.isfinite(x), x, 0).abs().double().max()) if x.numel() else 0.0
    if not largest:
        return x
    room = math.floor(math.log2(torch.finfo(x.dtype).max) - math.log2(largest))
    return x * 2.0 ** min(_range_exponent(x), max(room, 0))


def _minute(x: Tensor, _: Generator) -> Tensor:
    return x * 2.0 ** -_range_exponent(x)


def _spiked(x: Tensor, generator: Generator) -> Tensor:
    """Make one element of each row huge."""
    if not x.dim():
        return _finite_as(x, x * 2.0**policy.ONE_HUGE_POWER)
    where = torch.randint(x.shape[-1], (*x.shape[:-1], 1), generator=generator, device=x.device)
    return _finite_as(x, x * torch.ones_like(x).scatter_(-1, where, 2.0**policy.ONE_HUGE_POWER))


def _range_exponent(x: Tensor) -> int:
    return policy.LARGE_SCALE_POWER_FLOAT16 if x.dtype == torch.float16 else policy.LARGE_SCALE_POWER


def _finite_as(x: Tensor, changed: Tensor) -> Tensor:
    """Return changed values, with the type's largest number where only the change made them infinite."""
    largest = torch.finfo(x.dtype).max
    return torch.where(torch.isinf(x), changed, changed.clamp(-largest, largest))


def _ties(x: Tensor, _: Generator) -> Tensor:
    return torch.round(x * 2) / 2


def _sorted(x: Tensor, _: Generator) -> Tensor:
    return x.sort(dim=-1).values if x.dim() else x


def _outliers(x: Tensor, generator: Generator) -> Tensor:
    """Make one value in a thousand an outlier, and one in eight at the end of each long dimension.

    A loop that ends too early misses the latter; among very many terms a single outlier would hardly be missed.
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
    """Flip the sign of whole rows, so that sums and maxima change theirs."""
    if not x.dim():
        return -x
    flip = torch.rand(x.shape[:1], generator=generator, device=x.device) < 0.5
    flip[0] = True
    return torch.where(flip.reshape(-1, *[1] * (x.dim() - 1)), -x, x)


def _alternating(x: Tensor, _: Generator) -> Tensor:
    """Return 2 and 1/2 in turn along each dimension, with the element's sign: products of a row stay exact and near
    1.
    """
    odd = torch.zeros((), dtype=torch.bool, device=x.device)
    for dimension, size in enumerate(x.shape):
        if size > 1:
            own = torch.zeros(size, dtype=torch.bool, device=x.device)
            own[1::2] = True
            odd = odd ^ own.reshape(-1, *[1] * (x.dim() - 1 - dimension))
    powers = torch.full_like(x, 2.0, memory_format=torch.contiguous_format).masked_fill_(odd, 0.5)
    return powers.copysign_(x)


def _above(x: Tensor, _: Generator) -> Tensor:
    """Make all values greater than 1: a minimum that starts from 0 or 1 is then wrong."""
    return x.abs().mul_(policy.ABOVE_FACTOR).add_(policy.ABOVE_OFFSET)


def _below(x: Tensor, generator: Generator) -> Tensor:
    """Make all values less than -1, if any is negative: a maximum that starts from 0 or -1 is then wrong."""
    return _above(x, generator).neg_() if bool((x < 0).any()) else x


def _nonfinite(x: Tensor, generator: Generator) -> Tensor:
    return _planted(x, [math.nan, math.inf, -math.inf] * 2, generator)


def _nan(x: Tensor, generator: Generator) -> Tensor:
    return _planted(x, [math.nan], generator)


def _infinite(x: Tensor, generator: Generator) -> Tensor:
    return _planted(x, [math.inf, -math.inf], generator)


def _planted(x: Tensor, values: Sequence[float], generator: Generator) -> Tensor:
    """Return a copy that holds these values at random places."""
    flat = x.clone().reshape(-1)
    flat[_places(flat, len(values), generator)] = torch.tensor(values, dtype=x.dtype, device=x.device)
    return flat.reshape(x.shape)


def made_different(x: Tensor) -> Tensor:
    """Return a tensor of equal values, such as a normalisation's weights, with small differences; others unchanged."""
    if not x.is_floating_point() or not x.numel() or not bool((x == x.flatten()[0]).all()):
        return x
    return x + (x.abs() + 1) * torch.rand(x.shape, device=x.device).to(x.dtype) / 4


def renewed(x: Tensor, generator: Generator) -> Tensor:
    """Return new weights of the same magnitude; equal ones, as of a normalisation, become different."""
    noise = torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float32).to(x.dtype)
    # No host-side look at values here: it would wait for the GPU between timed samples.
    alike = (x == x.flatten()[0]).all()
    return torch.where(alike, x + (x.abs() + 1) * noise / 4, x * (0.5 + noise) + x.std(correction=0) * (noise - 0.5))


def _places(flat: Tensor, count: int, generator: Generator) -> Tensor:
    """Return at least one random position, perhaps with repetitions."""
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
SIGNED = Family("signed", _signed, coarse=True)
"""Inputs of KernelBench's problems, and of others, are seldom negative, which leaves half of a function untested."""
VAST = Family("vast", _vast)
MINUTE = Family("minute", _minute)
SPIKED = Family("spiked", _spiked)
RANGE_FAMILIES = (VAST, MINUTE, SPIKED)
"""The ends of a type's range: they show intermediate overflow and underflow, which many baselines have too."""
NONFINITE = Family("nonfinite", _nonfinite, finite=False)
LONE_NONFINITE = (
    Family("nan", _nan, finite=False),
    Family("nan-in-data", _nan, finite=False, of_largest=True),
    Family("infinite-in-data", _infinite, finite=False, of_largest=True),
)
"""One kind of value at a time. An infinity in a bias makes every row of a softmax NaN, whatever a NaN elsewhere is made
into."""
UNALIGNED = Family("unaligned", layout=Layout(shifted=True))
STRIDED = Family("strided", layout=Layout(strided=True))
PADDED = Family("padded", layout=Layout(padded=True))
"""Rows apart: many kernels take the stride of a row, and no other."""
MISALIGNED = tuple(
    Family(f"misaligned-{number}", layout=Layout(misaligned=number))
    for number in range(1, policy.MISALIGNED_TENSORS + 1)
)
"""One tensor alone: a kernel may look at the address of one, and load vectors from all."""
LAYOUTS = (UNALIGNED, STRIDED, PADDED, *MISALIGNED)
"""Families that change how tensors lie in memory and nothing else."""
WEIGHTS = Family("weights", renewed, of_weights=True)
FAMILIES = {
    family.name: family
    for family in (*VALUE_FAMILIES, *RANGE_FAMILIES, SIGNED, NONFINITE, *LONE_NONFINITE, *LAYOUTS, WEIGHTS)
}


def apply(
    family: Family, leaves: Leaves, generator: Generator, structures: Sequence[Structure] | None = None
) -> Leaves:
    """Return the leaves with the family's values, keeping their structure and memory layout.

    Integers are kept, and so are 8-bit floats, on which torch cannot calculate. The family's layout is not applied
    here: the owner of the memory does that. Without `structures` leaves have none.
    """
    change = family.change
    if change is None:
        return leaves
    known = [NONE] * len(leaves) if structures is None else structures
    least = max(map(_extent, leaves), default=0) if family.of_largest else 1
    return tuple(
        _changed(change, leaf, generator, structure) if is_changed(leaf) and _extent(leaf) >= least else leaf
        for leaf, structure in zip(leaves, known, strict=True)
    )


def touched(
    leaves: Leaves, fresh: Leaves, generator: Generator, structures: Sequence[Structure] | None = None
) -> Leaves:
    """Return the leaves with some elements of each floating-point tensor taken from `fresh`, another draw of the same.

    A few single elements change, so few that a check of samples misses them; and one row, or a small part of one, which
    makes a difference beyond any rounding tolerance.
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
    """Return True if families change it: a non-empty floating-point tensor on which torch can calculate."""
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.itemsize > 1 and leaf.numel() > 0


def _extent(leaf: Leaf) -> int:
    """Return the number of elements of a tensor that families change; 0 for all else."""
    return leaf.numel() if is_changed(leaf) else 0


def _stretch(own: Tensor, generator: Generator) -> Tensor:
    """Return adjacent positions in a flattened tensor."""
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
