"""Other values of one argument, to find out who ignores it. Runner processes only.

Integers may be sizes, indices, lengths or labels, and nobody says which. So their other values are made of those that
are there: indices that are in range stay in range, and lengths still add up. The reference has the last word.
"""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from kernel_lsp import policy
from kernel_lsp.workload import families
from kernel_lsp.workload.leaves import Leaf, laid_out_as, own_elements
from kernel_lsp.workload.structure import Structure, is_within, preserve

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types that torch calculates in everywhere."""


def other_values(value: Leaf, fresh: Leaf | None, structure: Structure, generator: Generator) -> Iterator[Leaf]:
    """Yield other values of an argument, the likeliest first; none where nothing tells one.

    Args:
        value: what it is.
        fresh: what it is in another draw, if that has it.
        structure: what its other values keep; of a fixed one there are none.
        generator: of random numbers; the same ones give the same values.
    """
    if structure.promise.fixed:
        return
    if isinstance(value, Tensor):
        yield from _other_tensors(value, fresh, structure, generator)
    elif isinstance(value, (int, float)):
        yield from (other for other in _other_numbers(value, fresh) if is_within(structure.promise, other))


def _other_numbers(value: bool | int | float, fresh: Leaf | None) -> Iterator[bool | int | float]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        if value > 0:  # first the smaller one: a kernel that takes it for a size stays within its memory
            yield value - 1
        yield value + 1
    else:
        yield fresh if isinstance(fresh, float) and fresh != value else 1.25 * value + 0.25


def _other_tensors(value: Tensor, fresh: Leaf | None, structure: Structure, generator: Generator) -> Iterator[Tensor]:
    own = own_elements(value)
    if not own.numel():
        return
    if isinstance(fresh, Tensor) and (fresh.shape, fresh.dtype) == (value.shape, value.dtype):
        drawn = fresh[tuple(slice(extent) for extent in own.shape)]
        if _differs(drawn, own):
            yield laid_out_as(drawn, value)
            return
    if own.dtype is torch.bool:
        made = _flipped(own, generator)
    elif own.dtype in _INTEGERS:
        made = _other_integers(own, generator)
    elif families.is_changed(own):
        made = _moved(own, generator)
    else:
        return
    kept = (preserve(structure, own, other) for other in made)
    yield from (laid_out_as(other, value) for other in kept if _differs(other, own))


def _moved(x: Tensor, generator: Generator) -> Iterator[Tensor]:
    yield policy.SHIFT_FACTOR * x + policy.SHIFT_OFFSET
    noise = torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float32)
    yield noise.to(x.dtype)


def _flipped(x: Tensor, generator: Generator) -> Iterator[Tensor]:
    flips = torch.rand(x.shape, generator=generator, device=x.device) < 0.5
    flips.view(-1)[0] = True
    yield x ^ flips
    yield ~x


def _other_integers(x: Tensor, generator: Generator) -> Iterator[Tensor]:
    least, most = int(x.amin()), int(x.amax())
    rows = x if x.dim() else x.reshape(1)
    if least == most:
        yield from (other.view(x.shape) for other in _lowered(rows, most, generator))
    elif rows.shape[-1] >= policy.SORTED_LEAST_ELEMENTS and bool((rows.diff(dim=-1) >= 0).all()):
        yield from _other_sorted(rows, generator)
    else:
        yield _shuffled(rows, generator)
        yield _shuffled(rows.reshape(1, -1), generator).view(x.shape)
        if not _all_different(rows):
            places = torch.randint(rows.numel(), rows.shape, generator=generator, device=x.device)
            yield rows.flatten()[places]


def _lowered(rows: Tensor, value: int, generator: Generator) -> Iterator[Tensor]:
    """Numbers from half of what all of them are, for lengths; a zero has no smaller one that it could be."""
    if value > 0:
        made = torch.randint(value // 2, value + 1, rows.shape, generator=generator, device=rows.device)
        made.view(-1)[0] = value // 2
        yield made.to(rows.dtype)


def _other_sorted(rows: Tensor, generator: Generator) -> Iterator[Tensor]:
    """Offsets that begin and end as before, by steps that are there in another order, or by steps of any size.

    Where all steps are 1, only another order of the elements is left.
    """
    steps = rows.diff(dim=-1)
    first, total = rows[..., :1], rows[..., -1:] - rows[..., :1]
    yield torch.cat([first, first + _shuffled(steps, generator).cumsum(-1)], -1).to(rows.dtype)
    if bool((steps == 1).all()):
        yield _shuffled(rows, generator)
        return
    share = torch.rand(rows.shape, generator=generator, device=rows.device, dtype=torch.float64)
    inner = first + (share[..., 1:-1] * (total + 1)).long().clamp(max=total).sort(-1).values
    yield torch.cat([first, inner, rows[..., -1:]], -1).to(rows.dtype)


def _shuffled(rows: Tensor, generator: Generator) -> Tensor:
    """The elements of each row in another order."""
    order = torch.rand(rows.shape, generator=generator, device=rows.device).argsort(-1)
    return rows.gather(-1, order)


def _all_different(rows: Tensor) -> bool:
    """Return True where no row holds a value twice, as places to write to do not."""
    return bool((rows.sort(-1).values.diff(dim=-1) != 0).all())


def _differs(other: Tensor, value: Tensor) -> bool:
    """Return True for other values; NaN counts as another value than itself."""
    if value.itemsize == 1:  # 8-bit floats cannot be compared
        other, value = other.view(torch.uint8), value.view(torch.uint8)
    return not torch.equal(other, value)
