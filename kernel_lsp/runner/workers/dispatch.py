"""Operations of torch as its dispatcher describes them. Worker processes only."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor


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
