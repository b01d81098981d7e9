"""Detects structure in a tensor's values that callers always provide, and preserves it. Runner processes only.

If an input is always symmetric, sparse or sorted, a kernel may rely on that; one for triangular matrices that skips
their zeros is right. So inputs whose values are changed keep the properties that two independent draws of the workload
share. Ranges are not structure: the contract declares them, and values outside reveal errors. Promises of the contract
are kept whatever the draws look like.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.workload.contract import NOTHING, Promise
from kernel_lsp.workload.leaves import Leaves, own_elements


@dataclass(frozen=True, slots=True)
class Structure:
    """Properties that a tensor's values have exactly.

    Attributes:
        zeros: a quarter or more are zero, but not all; triangular and sparse matrices.
        symmetric: in the last two dimensions, which are of one size.
        one_hot: every row is zero but for a single one.
        ascending: every row is sorted.
        descending: every row is sorted the other way.
        promise: the promise in the workload's contract.
    """

    zeros: bool = False
    symmetric: bool = False
    one_hot: bool = False
    ascending: bool = False
    descending: bool = False
    promise: Promise = NOTHING

    def __and__(self, other: "Structure") -> "Structure":
        """Return the properties that both have."""
        return Structure(
            self.zeros and other.zeros,
            self.symmetric and other.symmetric,
            self.one_hot and other.one_hot,
            self.ascending and other.ascending,
            self.descending and other.descending,
        )

    def with_promise(self, promise: Promise) -> "Structure":
        """Return this structure with the contract's promise."""
        return replace(self, promise=promise)


NONE = Structure()


def common(first: tuple[Structure, ...], second: tuple[Structure, ...]) -> tuple[Structure, ...]:
    """Return for each leaf the structure observed in both draws; none if they differ in number."""
    if len(first) != len(second):
        return (NONE,) * len(first)
    return tuple(a & b for a, b in zip(first, second, strict=True))


def observe(leaves: Leaves) -> tuple[Structure, ...]:
    """Return the structure of each leaf in one draw; numbers, integers and 8-bit floats have none."""
    return tuple(
        _observed(own_elements(leaf))
        if isinstance(leaf, Tensor)
        and leaf.is_floating_point()
        and leaf.itemsize > 1
        and leaf.dim()
        and leaf.numel() > 1
        else NONE
        for leaf in leaves
    )


def preserve(structure: Structure, original: Tensor, changed: Tensor) -> Tensor:
    """Return the changed values with the structure of the original tensor; both have the same shape."""
    promise = structure.promise
    if promise.fixed:
        return original
    changed = _within(promise, original, changed)
    if structure.one_hot:
        return torch.zeros_like(changed).scatter_(-1, changed.argmax(-1, keepdim=True), 1)
    if structure.zeros:
        changed = torch.where(original == 0, torch.zeros_like(changed), changed)
    if promise.lower_triangular:
        changed = changed.tril()
    if promise.upper_triangular:
        changed = changed.triu()
    if structure.symmetric or promise.symmetric:
        upper = torch.ones(changed.shape[-2:], dtype=torch.bool, device=changed.device).triu_()
        changed = torch.where(upper, changed, changed.mT)
    if (structure.ascending or structure.descending or promise.sorted) and changed.dim():
        changed = changed.sort(-1, descending=structure.descending and not promise.sorted).values
    return changed


def broken_promise(promise: Promise, x: Tensor) -> str:
    """Return how values break a promise, as the rest of a sentence after "it is"; empty if they keep it."""
    own = own_elements(x)
    if not own.numel():
        return ""
    for needed, triangle, words in (
        (promise.lower_triangular, torch.tril, "not lower triangular"),
        (promise.upper_triangular, torch.triu, "not upper triangular"),
    ):
        if needed and (x.dim() < 2 or not torch.equal(triangle(own), own)):
            return words
    if promise.symmetric and (x.dim() < 2 or x.shape[-1] != x.shape[-2] or not torch.equal(own, own.mT)):
        return "not symmetric"
    if promise.sorted and (not x.dim() or not bool((own[..., :-1] <= own[..., 1:]).all())):
        return "not sorted along its last dimension"
    if promise.least is not None and not bool((own >= promise.least).all()):
        return f"{own.amin().item():g} at its least"
    if promise.most is not None and not bool((own <= promise.most).all()):
        return f"{own.amax().item():g} at its most"
    return ""


def is_within(promise: Promise, value: float) -> bool:
    """Return True if a number is in the promised range."""
    return (promise.least is None or value >= promise.least) and (promise.most is None or value <= promise.most)


def _within(promise: Promise, original: Tensor, changed: Tensor) -> Tensor:
    """Return values with those beyond an end of the promised range mirrored at that end, so that they still differ.

    Values that are not finite, and those still outside through rounding, are taken from the original.
    """
    if promise.least is None and promise.most is None:
        return changed
    least = -math.inf if promise.least is None else promise.least
    most = math.inf if promise.most is None else promise.most
    wide = changed.double()
    if math.isinf(most - least):
        end = least if promise.most is None else most
        mirrored = end + (wide - end).abs() * (1 if promise.most is None else -1)
    else:
        around = (wide - least).remainder(2 * (most - least)) if most > least else torch.zeros_like(wide)
        mirrored = least + torch.minimum(around, 2 * (most - least) - around)
    made = torch.where((wide >= least) & (wide <= most), changed, mirrored.to(changed.dtype))
    return torch.where(torch.isfinite(wide) & (made >= least) & (made <= most), made, original)


def _observed(x: Tensor) -> Structure:
    if bool(x.amin() == x.amax()):  # a placeholder: ones, or zeros
        return NONE
    zero = x == 0
    zeros = int(zero.sum()) >= policy.KEPT_ZERO_SHARE * x.numel()
    one_hot = (
        zeros and x.shape[-1] > 1 and bool(((x == 1).sum(-1) == 1).all() & (zero.sum(-1) == x.shape[-1] - 1).all())
    )
    return Structure(
        zeros=zeros,
        symmetric=_is_symmetric(x),
        one_hot=one_hot,
        ascending=_is_sorted(x[..., :-1], x[..., 1:]),
        descending=_is_sorted(x[..., 1:], x[..., :-1]),
    )


def _is_sorted(lesser: Tensor, greater: Tensor) -> bool:
    """Return True if no element is greater than its neighbour, and chance is ruled out as the cause.

    Of k + 1 different values in random order, one permutation in (k + 1)! is sorted.
    """
    if not lesser.numel() or not bool((lesser <= greater).all()):
        return False
    steps = (lesser < greater).sum(-1).double()
    return float(torch.lgamma(steps + 2).sum()) > -math.log(policy.SORTED_BY_CHANCE)


def _is_symmetric(x: Tensor) -> bool:
    if x.dim() < 2 or x.shape[-1] != x.shape[-2] or not torch.equal(x, x.mT):
        return False
    others = (x != x[..., :1, 1:2]).triu_(1)
    return int(others.sum()) >= policy.SYMMETRIC_LEAST_PAIRS
