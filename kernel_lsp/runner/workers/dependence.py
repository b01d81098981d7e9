"""Estimate how many input elements each output element is made of, and how large their partial sums are.

The number is found by changing one of them.

An element of an input that changes c of the m elements of an output, where the input has n, stands for c n / m terms of
each: k for a product of matrices with k columns and rows, the length of a row for a softmax, 1 element by element.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.comparison import Measure
from kernel_lsp.workload.leaves import Leaves, laid_out_as, own_elements


def terms_by_output(
    reference: Callable[[Leaves], Sequence[Tensor]], leaves: Leaves, expected: Sequence[Tensor], measure: Measure | None
) -> tuple[float, ...]:
    """Return for each output about how many terms its elements are made of; at least 1.

    If the reference cannot run again, it is the number of elements of the largest input for each output element.

    Args:
        reference: what says what is right.
        leaves: inputs.
        expected: what it says of these.
        measure: reads errors faster than `comparison.read`.
    """
    inputs = sorted(((tensor.numel(), place) for place, tensor in _floating(leaves)), reverse=True)
    found = [1.0] * len(expected)
    try:
        for size, place in inputs[: policy.TERMS_INPUTS]:
            if (changed := _with_one_changed(leaves, place)) is None:
                continue
            for number, (other, usual) in enumerate(zip(reference(changed), expected, strict=True)):
                if usual.numel() and other.shape == usual.shape:
                    terms = _differing(other, usual, measure) * size / usual.numel()
                    found[number] = max(found[number], terms)
    except (WorkloadError, ValueError, torch.OutOfMemoryError):
        largest = inputs[0][0]
        return tuple(max(1.0, largest / max(output.numel(), 1)) for output in expected)
    return tuple(found)


def growth_of_sums(leaves: Leaves) -> float:
    """Return the factor by which partial sums along rows of inputs exceed the whole sums; the largest, or 0.

    Both are root mean squares over rows; only the first rows of many are read.
    """
    found = 0.0
    for _, tensor in _floating(leaves):
        own = own_elements(tensor)
        if own.dim() and own.shape[-1] > 1:
            rows = own.reshape(-1, own.shape[-1])[: max(1, policy.GROWTH_SAMPLE_ELEMENTS // own.shape[-1])]
            sums = rows.double().cumsum(-1)
            growth = float(sums.abs().amax(-1).square().mean().sqrt() / sums[:, -1].square().mean().sqrt())
            found = max(found, growth if math.isfinite(growth) else 0.0)
    return found


def _floating(leaves: Leaves) -> Iterator[tuple[int, Tensor]]:
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.itemsize > 1 and leaf.numel():
            yield place, leaf


def _with_one_changed(leaves: Leaves, place: int) -> Leaves | None:
    """Return leaves with a tensor's middle element set to its largest or smallest value; None if all are equal."""
    tensor = leaves[place]
    assert isinstance(tensor, Tensor)
    own = own_elements(tensor)
    least, most = own.amin(), own.amax()
    flat = own.flatten().clone()
    middle = flat.numel() // 2
    other = torch.where(flat[middle] < most, most, least)
    if bool(flat[middle] == other):
        return None
    flat[middle] = other
    return (*leaves[:place], laid_out_as(flat.view(own.shape), tensor), *leaves[place + 1 :])


def _differing(other: Tensor, usual: Tensor, measure: Measure | None) -> int:
    """Return the number of elements of an output that differ from the usual ones."""
    size = comparison.scale(usual, usual.dtype)
    reading = measure(other, usual, size, policy.TERMS_CHANGED_UNITS) if measure is not None else None
    return (reading or comparison.read(other, usual, size, policy.TERMS_CHANGED_UNITS)).wrong
