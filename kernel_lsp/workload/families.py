"""Input families: the same case with other values or another layout, to catch kernels that lean on either.

Runner processes only (imports torch). Every family draws from the generator it is given, so that a seed repeats it.
The list follows what published kernel benchmarks were beaten by: answers that are right only for standard normal
data, for aligned contiguous tensors, or without ties, outliers and non-finite values.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies in memory relative to a fresh allocation: first element skipped, every second one used."""

    shifted: bool = False
    strided: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One family; `change` maps the values of a floating-point tensor, integer tensors are left alone."""

    name: str
    change: Callable[[Tensor, Generator], Tensor] | None = None
    layout: Layout = Layout()
    finite: bool = True


def _shifted(x: Tensor, _: Generator) -> Tensor:
    return x * 1.5 + 0.75


def _large(x: Tensor, _: Generator) -> Tensor:
    return x * (16.0 if x.dtype == torch.float16 else 256.0)


def _tiny(x: Tensor, _: Generator) -> Tensor:
    return x * 2.0**-8


def _ties(x: Tensor, _: Generator) -> Tensor:
    return torch.round(x * 2) / 2


def _sorted(x: Tensor, _: Generator) -> Tensor:
    return x.sort(dim=-1).values if x.dim() else x


def _outliers(x: Tensor, generator: Generator) -> Tensor:
    flat = x.clone().reshape(-1)
    where = _places(flat, generator)
    flat[where] = flat[where].sign() * 24.0
    return flat.reshape(x.shape)


def _nonfinite(x: Tensor, generator: Generator) -> Tensor:
    flat = x.clone().reshape(-1)
    where = _places(flat, generator)[:6]
    values = torch.tensor([math.nan, math.inf, -math.inf] * 2, dtype=x.dtype, device=x.device)
    flat[where] = values[: len(where)]
    return flat.reshape(x.shape)


def _places(flat: Tensor, generator: Generator) -> Tensor:
    """About one position in a thousand, at least one."""
    count = max(1, flat.numel() // 1024)
    return torch.randint(flat.numel(), (count,), generator=generator, device=flat.device)


NORMAL = Family("normal")
VALUE_FAMILIES = (
    NORMAL,
    Family("shifted", _shifted),
    Family("large", _large),
    Family("tiny", _tiny),
    Family("ties", _ties),
    Family("sorted", _sorted),
    Family("outliers", _outliers),
)
NONFINITE = Family("nonfinite", _nonfinite, finite=False)
UNALIGNED = Family("unaligned", layout=Layout(shifted=True))
STRIDED = Family("strided", layout=Layout(strided=True))
FAMILIES = {family.name: family for family in (*VALUE_FAMILIES, NONFINITE, UNALIGNED, STRIDED)}


def apply(family: Family, leaves: tuple[object, ...], generator: Generator) -> tuple[object, ...]:
    """The leaves with the family's values. Layout is not applied here: whoever owns the memory lays tensors out."""
    if family.change is None:
        return leaves
    return tuple(
        family.change(leaf, generator)
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel()
        else leaf
        for leaf in leaves
    )
