"""The base of torch dispatch modes that replace operations on the fake GPU. Worker processes only."""

from typing import Any

from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """A dispatch mode that receives single operations, but no higher-order operators.

    Those, such as the one by which `torch.library.wrap_triton` launches, consist of launches and operations, each of
    which arrives by itself.
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
        """Execute one operation and return its result."""
        raise NotImplementedError
