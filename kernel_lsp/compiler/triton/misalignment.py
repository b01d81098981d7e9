"""Moves tensors off their alignment: Triton compiles a kernel anew for pointers that are not multiples of 16 bytes.

Worker processes only.
"""

from collections.abc import Iterator, Sequence

import torch

from kernel_lsp import policy
from kernel_lsp.workload.workload import Leaf


def misalignments(inputs: Sequence[Leaf]) -> Iterator[tuple[Leaf, ...]]:
    """Yield inputs of equal values whose tensors lie as those of the judge's `misaligned` and `unaligned` families do.

    In the first all tensors start one element off, in each further one a single tensor does. Tensors that are not
    contiguous stay where they are.
    """
    moved = [_one_element_off(leaf) for leaf in inputs]
    places = [place for place, leaf in enumerate(moved) if leaf is not inputs[place]]
    if not places:
        return
    yield tuple(moved)
    if len(places) == 1:
        return
    for place in places[: policy.MISALIGNED_TENSORS]:
        yield (*inputs[:place], moved[place], *inputs[place + 1 :])


def _one_element_off(leaf: Leaf) -> Leaf:
    if not isinstance(leaf, torch.Tensor) or not leaf.is_contiguous() or not leaf.numel():
        return leaf
    memory = torch.empty(leaf.numel() + 1, dtype=leaf.dtype, device=leaf.device)
    return memory[1:].view(leaf.shape).copy_(leaf)
