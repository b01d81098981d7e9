"""Other values of one argument, to find out who ignores it. Runner processes only."""

import torch
from torch import Generator, Tensor

from kernel_lsp.workload.leaves import Leaf, laid_out_as, own_elements


def other_value(value: Leaf, fresh: Leaf | None, generator: Generator) -> Leaf | None:
    """Return a fresh draw of an argument, or where that is the same the value moved; None if neither is known."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return fresh if isinstance(fresh, float) and fresh != value else 1.25 * value + 0.25
    if not isinstance(value, Tensor):
        return None
    if isinstance(fresh, Tensor) and _differs(fresh, value):
        own = own_elements(value)
        return laid_out_as(fresh[tuple(slice(extent) for extent in own.shape)], value)
    return 1.5 * value + 0.75 if value.is_floating_point() else None


def _differs(fresh: Tensor, value: Tensor) -> bool:
    """Return True for another tensor of the same kind."""
    return (fresh.shape, fresh.dtype) == (value.shape, value.dtype) and not torch.equal(fresh, value)
