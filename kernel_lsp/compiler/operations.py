"""Looking on while torch computes: what the modes of the pretended GPU have in common. Worker processes only."""

from typing import Any

from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """A mode that is handed operations one by one, and operators of operators not at all.

    These, such as the one by which `torch.library.wrap_triton` launches, are made of launches and of operations, and
    each of those is heard of by itself.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and asking would import hundreds of modules

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        if isinstance(func, HigherOrderOperator):
            return func(*args, **(kwargs or {}))
        return self.operation(func, args, kwargs or {})

    def operation(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> object:
        """Do one operation; return its result."""
        raise NotImplementedError
