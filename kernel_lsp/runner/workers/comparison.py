"""Measure the error of an output in units that mean the same for every type and magnitude.

The unit at an element is ``eps(dtype) * (|expected| + rms(expected))``: relative where the value is large, absolute at
the tensor's own scale where it cancels towards zero. Rounding the exact result once costs at most half a unit.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.runner.workers.error_bounds import Bounds
from kernel_lsp.runner.workers.torch_types import norm

_ROW = 1 << 12
_MIX = -0x61C8_8646_80B5_83EB  # the golden ratio as a fraction of 2^64
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Distance:
    """The error of one output: its largest and RMS error in units, and the first element beyond the bound, if any.

    `allowed` is that bound. With `diffuse` no single element exceeds it, but the RMS error exceeds its own bound, which
    `allowed` then holds; the worst element counts as wrong.
    """

    max: float
    rms: float
    first_wrong: int | None
    wrong: int
    expected: str = ""
    actual: str = ""
    allowed: float = 0.0
    diffuse: bool = False


def scale(expected: Tensor, dtype: torch.dtype, brink: float = math.inf) -> float:
    """Return the RMS of the elements up to `brink` that fit into `dtype`; larger ones would hide their errors."""
    largest = min(torch.finfo(dtype).max if dtype.is_floating_point else sys.float_info.max, brink)
    total, count, root = 0.0, expected.numel(), math.sqrt(expected.numel())
    for (part,) in _chunks(expected):
        share = norm(part.double()) / root
        if not share * root <= largest:  # else no element can be larger
            wide = part.double()
            wide = wide[wide.abs() <= largest]
            most = wide.abs().max() if wide.numel() else torch.tensor(0.0)
            # Divide by a tensor: for a number a GPU multiplies by its inverse, which may be infinite.
            share = float(most) * (norm(wide / most) / root) if most else 0.0
            count -= part.numel() - wide.numel()
        total = math.hypot(total, share)
    return total * math.sqrt(expected.numel() / count) if count else 0.0


def brink(expected: Tensor, dtype: torch.dtype) -> float:
    """Return a magnitude between two distant groups of elements, as below -1e9 in masked scores; infinite if none.

    Judged by a sample. The upper group would hide the errors of the lower one in an output of type `dtype`. A smaller
    gap would not, and the lower group may then be the tail of a softmax, which nothing computes so exactly.
    """
    gap = max(policy.BRINK_GAP, policy.BRINK_HIDDEN_SHARE / torch.finfo(dtype).eps)
    flat = expected.reshape(-1)
    step = flat.numel() // policy.BRINK_SAMPLE_ELEMENTS | 1  # an odd one, for what masks often goes by columns
    sizes = flat[::step].double().abs()
    sizes = sizes[(sizes > 0) & torch.isfinite(sizes)].sort().values
    ends = (sizes[1:] / gap > sizes[:-1]).nonzero().flatten()
    ends = ends[ends + 1 >= max(policy.BRINK_LEAST_ELEMENTS, sizes.numel() // policy.BRINK_LEAST_ONE_IN)]
    return float(sizes[ends[0]]) * math.sqrt(gap) if ends.numel() else math.inf


def all_finite(tensor: Tensor) -> bool:
    """Return True where no element is infinite or NaN."""
    return all(math.isfinite(norm(part.double())) or bool(torch.isfinite(part).all()) for (part,) in _chunks(tensor))


def mean(tensor: Tensor) -> float:
    """Return the mean of the elements that are not NaN; NaN if all are."""
    total, count = 0.0, 0
    for (part,) in _chunks(tensor):
        wide = part.double()
        total += float(wide.nansum())
        count += int((~torch.isnan(wide)).sum())
    return total / count if count else math.nan


class ErrorReading(NamedTuple):
    """The largest error and the sum of squared errors, in units; the number of wrong elements, and the first."""

    largest: float
    squares: float
    wrong: int
    first: int | None


Measure = Callable[[Tensor, Tensor, float, float], ErrorReading | None]
"""Takes a reading as `read` does, or answers None."""


def distance(
    actual: Tensor, expected: Tensor, rms_of_expected: float, bounds: Bounds, measure: Measure | None = None
) -> Distance:
    """Compare `actual` with `expected` (same shape; float64 where the reference allows it) against `bounds`.

    Integer and bool outputs must be equal. Non-finite elements must be the same ones; where the exact value is beyond
    the range of the output's type, infinity is the right answer. `measure` may read faster than `read`.
    """
    reading = measure(actual, expected, rms_of_expected, bounds.max) if measure is not None else None
    if reading is None:
        reading = read(actual, expected, rms_of_expected, bounds.max)
    largest, squares, wrong, first = reading
    rms = math.sqrt(squares / actual.numel()) if actual.numel() else 0.0
    if diffuse := first is None and rms > bounds.rms:
        first, wrong = _worst(actual, expected, rms_of_expected), 1
    if first is None:
        return Distance(largest, rms, None, 0)
    allowed = bounds.rms if diffuse else bounds.max
    return Distance(largest, rms, first, wrong, _show(expected, first), _show(actual, first), allowed, diffuse)


def read(actual: Tensor, expected: Tensor, rms_of_expected: float, allowed: float) -> ErrorReading:
    """Return the errors of an output, read by tensor operations in chunks; errors up to `allowed` units are right."""
    largest, squares, wrong, first = 0.0, 0.0, 0, None
    at = 0
    for a, e in _chunks(actual, expected):
        units = _units(a, e, rms_of_expected)
        most = float(units.max())
        largest = max(largest, most)
        root = norm(units)
        squares += root * root
        if most > allowed:
            beyond = units > allowed
            if first is None:
                first = at + int(beyond.to(torch.uint8).argmax())
            wrong += int(beyond.sum())
        at += units.numel()
    return ErrorReading(largest, squares, wrong, first)


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index, in a tensor of `shape`, of its `flat`-th element in row-major order."""
    index: list[int] = []
    for extent in reversed(shape):
        flat, rest = divmod(flat, extent)
        index.append(rest)
    return tuple(reversed(index))


def fingerprint(data: Tensor, salt: int = 0) -> int:
    """Return a checksum of a flat byte tensor's content that depends on order, computed where the tensor is.

    The words are laid out in rows; sums of rows and of columns are weighted by their place. The weights cannot be known
    without `salt` (up to 62 bits).
    """
    words = data.view(torch.int32) if data.numel() % 4 == 0 and data.storage_offset() % 4 == 0 else data
    whole = words.numel() // _ROW * _ROW
    rows, rest = words[:whole].view(-1, _ROW), words[whole:]
    total = 0
    for number, sums in enumerate((rows.sum(1, dtype=torch.int64), rows.sum(0, dtype=torch.int64), rest)):
        weights = (torch.arange(sums.numel(), device=data.device) + ((number << 40) + salt)) * _MIX
        weights ^= weights >> 29  # else some places would weigh alike
        total += int((sums * weights).sum())
    return total & 0xFFFF_FFFF_FFFF_FFFF


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return True if two tensors of one type and shape hold the same bits."""
    size = policy.COMPARED_BITS if a.is_cuda else policy.COMPARED_ELEMENTS
    return all(torch.equal(_bits(x), _bits(y)) for x, y in _chunks(a, b, size=size))


def holds_blank(tensor: Tensor) -> bool:
    """Return True if an element consists of 0xFF bytes, like memory that was never written."""
    parts = (_bits(part) for (part,) in _chunks(tensor))
    return any(bool((bits == (255 if bits.dtype is torch.uint8 else -1)).any()) for bits in parts)


def _bits(flat: Tensor) -> Tensor:
    """Return a flat tensor's bits as integers."""
    if (width := flat.element_size()) in _INTEGERS:
        return flat.view(_INTEGERS[width])
    # A single element counts as contiguous with any stride, and then cannot be viewed as bytes; hence the copy.
    return flat.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def _units(actual: Tensor, expected: Tensor, rms_of_expected: float) -> Tensor:
    infinity = torch.tensor(math.inf, dtype=torch.float64, device=actual.device)
    if not actual.is_floating_point():
        different = actual != expected.to(actual.dtype) if expected.is_floating_point() else actual != expected
        return torch.where(different, infinity, 0.0)
    # Through float64, because the narrow types lack most operations.
    a, e = actual.double(), expected.double()
    unit = e.abs()
    in_range = bool(unit.max() <= torch.finfo(actual.dtype).max)
    eps = torch.finfo(actual.dtype).eps
    unit.mul_(eps).add_(rms_of_expected * eps).clamp_min_(1e-300)
    error = (a - e).abs_().div_(unit)
    if in_range and math.isfinite(float(error.max())):
        return error  # the same as below, with a third of the memory traffic
    representable = expected.to(actual.dtype).double()
    special = ~torch.isfinite(representable)
    agree = (torch.isnan(a) & torch.isnan(representable)) | (a == representable)
    error = torch.where(special, torch.where(agree, 0.0, infinity), error)
    return torch.where(~special & ~torch.isfinite(error), infinity, error)


def _worst(actual: Tensor, expected: Tensor, rms_of_expected: float) -> int:
    best, where, at = -1.0, 0, 0
    for a, e in _chunks(actual, expected):
        units = _units(a, e, rms_of_expected)
        if float(units.max()) > best:
            best, where = float(units.max()), at + int(units.argmax())
        at += units.numel()
    return where


def _show(tensor: Tensor, flat: int) -> str:
    value = tensor.reshape(-1)[flat].item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _chunks(*tensors: Tensor, size: int | None = None) -> Iterator[tuple[Tensor, ...]]:
    """Yield the same elements of flat tensors, `size` at a time, else `policy.COMPARED_ELEMENTS`."""
    size = policy.COMPARED_ELEMENTS if size is None else size
    flat = [t.reshape(-1) for t in tensors]
    for start in range(0, flat[0].numel(), size):
        yield tuple(t[start : start + size] for t in flat)
