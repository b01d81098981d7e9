"""Other values of one argument, to detect a kernel that ignores it or assumes its usual value. Runner processes only.

Integers may be sizes, indices, lengths or labels; which, is unknown. So their other values are derived from the present
ones: indices stay in range, and lengths still add up. A single integer that is no size may become much larger, as a
shift or a window. The reference must accept the values, then the baseline.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor

from kernel_lsp import policy
from kernel_lsp.workload import families
from kernel_lsp.workload.leaves import Leaf, laid_out_as, own_elements
from kernel_lsp.workload.structure import Structure, is_within, preserve

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Integer types that torch supports in all operations."""
_LARGEST = 2**31 - 1
"""Largest number that fits an `int` of a kernel."""


def other_values(
    value: Leaf, fresh: Leaf | None, structure: Structure, generator: Generator, extents: Sequence[int] = ()
) -> Iterator[Leaf]:
    """Yield other values of an argument, the likeliest first; none if none can be derived.

    Args:
        value: the present value.
        fresh: its value in another draw; None if that has none.
        structure: the structure that other values keep; a fixed argument has none.
        generator: random generator; its state determines the values.
        extents: extents of all inputs; an integer among them is taken for a size.
    """
    if structure.promise.fixed:
        return
    if isinstance(value, Tensor):
        yield from _other_tensors(value, fresh, structure, generator)
    elif isinstance(value, (int, float)):
        others = _other_numbers(value, fresh, extents)
        yield from (other for other in others if is_within(structure.promise, other))


def is_varied_often(value: Leaf) -> bool:
    """Return True for integers and bools, which have several other values worth trying."""
    if isinstance(value, Tensor):
        return value.dtype is torch.bool or value.dtype in _INTEGERS
    return isinstance(value, int)


def _other_numbers(
    value: bool | int | float, fresh: Leaf | None, extents: Sequence[int]
) -> Iterator[bool | int | float]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from dict.fromkeys(other for other in _steps(value, extents) if other != value)
    else:
        yield fresh if isinstance(fresh, float) and fresh != value else 1.25 * value + 0.25


def _steps(value: int, extents: Sequence[int]) -> Iterator[int]:
    """Yield the smaller neighbour first: a kernel that uses the number as a size then stays within its memory.

    An integer that is no size is also raised beyond twice the longest row, so that no single subtraction wraps it, plus
    one: a shift by whole rows would change nothing.
    """
    if value > 0:
        yield value - 1
    yield value + 1
    if value > 0 and value not in extents:
        yield from (other for other in (value + 2 * max(extents, default=0) + 1, 2 * value) if other <= _LARGEST)
        yield value // 2


def _other_tensors(value: Tensor, fresh: Leaf | None, structure: Structure, generator: Generator) -> Iterator[Tensor]:
    own = own_elements(value)
    if not own.numel():
        return
    if isinstance(fresh, Tensor) and (fresh.shape, fresh.dtype) == (value.shape, value.dtype):
        drawn = fresh[tuple(slice(extent) for extent in own.shape)]
        if _differs(drawn, own):
            yield laid_out_as(drawn, value)
            if not is_varied_often(value):
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
    """Yield random flips; one per row; then true up to, and from, a random place of each row, as padding masks; all."""
    flips = torch.rand(x.shape, generator=generator, device=x.device) < 0.5
    flips.view(-1)[0] = True
    yield x ^ flips
    rows = x if x.dim() else x.reshape(1)
    place = torch.arange(rows.shape[-1], device=x.device)
    one = torch.randint(rows.shape[-1], (*rows.shape[:-1], 1), generator=generator, device=x.device)
    for other in (rows ^ (place == one), place <= one, place >= one):
        yield other.expand(rows.shape).reshape(x.shape)
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
        yield _exchanged(rows, generator).view(x.shape)
        yield _shuffled(rows.reshape(1, -1), generator).view(x.shape)
        yield _drawn_again(rows, generator).view(x.shape)


def _lowered(rows: Tensor, value: int, generator: Generator) -> Iterator[Tensor]:
    """Yield numbers up to `value`, for tensors of equal lengths: from half of it, all or a few, and from 1 on."""
    if value <= 0:
        return
    for least, few in dict.fromkeys(((value // 2, False), (value // 2, True), (1, False))):
        made = torch.randint(least, value + 1, rows.shape, generator=generator, device=rows.device).to(rows.dtype)
        place = _places(rows, generator) if few else made.new_zeros(1, dtype=torch.int64)
        made = rows.clone() if few else made
        made.view(-1)[place] = least
        yield made


def _other_sorted(rows: Tensor, generator: Generator) -> Iterator[Tensor]:
    """Yield offsets with the same first and last value, by shuffled steps or by steps of any size.

    If all steps are 1, the elements themselves are shuffled, and drawn with repetition.
    """
    steps = rows.diff(dim=-1)
    first, total = rows[..., :1], rows[..., -1:] - rows[..., :1]
    if bool((steps == 1).all()):
        yield _shuffled(rows, generator)
        yield _exchanged(rows, generator)
        yield _drawn_again(rows, generator)
        return
    yield torch.cat([first, first + _shuffled(steps, generator).cumsum(-1)], -1).to(rows.dtype)
    yield _one_moved(rows, generator)
    share = torch.rand(rows.shape, generator=generator, device=rows.device, dtype=torch.float64)
    inner = first + (share[..., 1:-1] * (total + 1)).long().clamp(max=total).sort(-1).values
    yield torch.cat([first, inner, rows[..., -1:]], -1).to(rows.dtype)


def _shuffled(rows: Tensor, generator: Generator) -> Tensor:
    """Return each row in random order."""
    order = torch.rand(rows.shape, generator=generator, device=rows.device).argsort(-1)
    return rows.gather(-1, order)


def _exchanged(rows: Tensor, generator: Generator) -> Tensor:
    """Return the elements with a few exchanged for others, so few that a look at samples of them misses it."""
    flat = rows.flatten().clone()
    for place in _places(rows, generator):
        others = (flat != flat[place]).nonzero().flatten()
        pair = torch.stack([place, others[torch.randint(others.numel(), (), generator=generator, device=rows.device)]])
        flat[pair] = flat[pair.flip(0)]
    return flat.view(rows.shape)


def _one_moved(rows: Tensor, generator: Generator) -> Tensor:
    """Return sorted rows in which one inner element has come a step nearer to a neighbour, if there is room."""
    made, inner = rows.clone(), rows[..., 1:-1]
    step = torch.where(rows[..., 2:] > inner, 1, torch.where(rows[..., :-2] < inner, -1, 0)).to(rows.dtype)
    places = step.flatten().nonzero().flatten()
    if places.numel():
        chosen = places[torch.randint(places.numel(), (), generator=generator, device=rows.device)]
        made[..., 1:-1] += step * (torch.arange(step.numel(), device=rows.device) == chosen).view(step.shape)
    return made


def _places(rows: Tensor, generator: Generator) -> Tensor:
    """Return a few random positions in a flattened tensor, perhaps with repetitions."""
    return torch.randint(rows.numel(), (policy.TOUCHED_LEAST // 2,), generator=generator, device=rows.device)


def _drawn_again(rows: Tensor, generator: Generator) -> Tensor:
    """Return random elements of a tensor, with repetitions."""
    flat = rows.flatten()
    made = flat[torch.randint(flat.numel(), flat.shape, generator=generator, device=flat.device)]
    made[1:2] = made[0]
    return made.view(rows.shape)


def all_different(x: Tensor) -> bool:
    """Return True if no row has a value twice, as for indices to write to."""
    rows = x if x.dim() else x.reshape(1)
    return bool((rows.sort(-1).values.diff(dim=-1) != 0).all())


def _differs(other: Tensor, value: Tensor) -> bool:
    """Return True if the values differ; NaN differs from itself."""
    if value.itemsize == 1:  # 8-bit floats cannot be compared
        other, value = other.view(torch.uint8), value.view(torch.uint8)
    return not torch.equal(other, value)
