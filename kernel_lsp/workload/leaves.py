"""The leaves of a workload's inputs: tensors and constants, with helpers for tensor layouts. Runner processes only."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor

Leaf = Tensor | bool | int | float | str | torch.dtype | None
Leaves = tuple[Leaf, ...]


def returned_leaves(returned: object) -> tuple[object, ...]:
    """Return the outputs of a function, one by one; an output that is None becomes a tensor without elements.

    So an output that only one version returns shows as a difference in shape. If all outputs are None, nothing was
    returned, and they are kept.
    """
    several = next((kind for kind in (tuple, list) if isinstance(returned, kind)), None)
    # Not by an `__iter__` of the version's own, which would run once nobody watches.
    outputs = (returned,) if several is None else tuple(several.__iter__(cast(Any, returned)))
    # A tensor subclass may compute when any attribute is read.
    device = next((output.device for output in outputs if type(output) is Tensor), None)
    if device is None:
        return outputs
    return tuple(torch.empty(0, dtype=torch.uint8, device=device) if o is None else o for o in outputs)


def tensors(leaves: Iterable[object]) -> list[Tensor]:
    """Return the leaves that are tensors, in order."""
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def own_elements(tensor: Tensor) -> Tensor:
    """Return the elements with memory of their own: an expanded dimension counts once."""
    for dim, step in enumerate(tensor.stride()):
        if step == 0:
            tensor = tensor.narrow(dim, 0, min(1, tensor.shape[dim]))
    return tensor


def laid_out_as(values: Tensor, tensor: Tensor) -> Tensor:
    """Return `values`, one for each of the tensor's own elements, in the tensor's memory layout."""
    own = own_elements(tensor)
    if values.stride() != own.stride():
        values = torch.empty_strided(own.shape, own.stride(), dtype=tensor.dtype, device=tensor.device).copy_(values)
    return values.expand(tensor.shape)
