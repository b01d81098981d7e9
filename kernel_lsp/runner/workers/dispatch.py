"""Operations of torch as its dispatcher describes them. Worker processes only."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, cast

import torch
from torch import Tensor

_MOVING = frozenset(
    (
        *("_copy_from", "_local_scalar_dense", "_pin_memory", "_reshape_alias", "_to_copy", "_unsafe_view", "cat"),
        *("clone", "constant_pad_nd", "copy_", "fill_", "is_pinned", "lift_fresh", "record_stream", "repeat", "set_"),
        *("stack", "zero_"),
    )
)
"""Operations that set, convert or move values and compute nothing of them, as copies do in a trace of the GPU."""


class Packet(Protocol):
    """All overloads of an operation."""

    __name__: str


class TorchOperation(Protocol):
    """One overload of an operation, as `__torch_dispatch__` receives it (`torch._ops.OpOverload`)."""

    overloadpacket: Packet
    tags: Collection[torch.Tag]

    def __call__(self, *arguments: object, **named: object) -> object:
        """Run the operation."""
        ...


def written_by(operation: Any, arguments: Sequence[object], named: Mapping[str, object]) -> list[Tensor]:
    """Return the tensors that an operation writes to, by its schema: `out=`, `x.copy_(y)`, `x.fill_(0)`."""
    written: list[Tensor] = []
    for position, argument in enumerate(operation._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = named.get(argument.name, arguments[position] if position < len(arguments) else None)
            written += [value] if isinstance(value, Tensor) else cast(Sequence[Tensor] | None, value) or ()
    return written


def elements_computed(operation: Any, arguments: Sequence[object], named: Mapping[str, object], made: object) -> int:
    """Return the elements of the largest tensor among those that an operation of torch computes from, and makes.

    0 where it makes, views or moves values only, or is no operation of torch's own.
    """
    is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in operation._schema.returns)
    given = _tensors((*arguments, *named.values()))
    if operation.namespace != "aten" or operation.overloadpacket.__name__ in _MOVING or is_view or not given:
        return 0
    return max(tensor.numel() for tensor in (*given, *_tensors((made,))))


def _tensors(values: Sequence[object]) -> list[Tensor]:
    """Return the tensors among values, and in lists of them."""
    each = chain.from_iterable(cast(Sequence[object], v) if isinstance(v, (list, tuple)) else (v,) for v in values)
    return [value for value in each if isinstance(value, Tensor)]
