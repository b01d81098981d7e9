"""Memory of one set of inputs in the worker under test. Worker processes only."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from kernel_lsp.device.shared_buffer import SharedBuffer, constant_of
from kernel_lsp.device.tensors import Argument, TensorSpec


class InputBuffer:
    """One set of inputs in an allocation: its bytes, its leaves, and a copy of the inputs before a launch."""

    def __init__(self, memory: SharedBuffer, at: int, nbytes: int, arguments: Sequence[Argument]) -> None:
        self.memory = memory
        self.data = memory.data[at : at + nbytes]
        whole = SharedBuffer(self.data, memory.handle, memory)
        self.leaves: list[Any] = [whole.view(a) if isinstance(a, TensorSpec) else constant_of(a) for a in arguments]
        self.pristine: Tensor | None = None

    def restore(self) -> None:
        """Restore the inputs that a launch changed."""
        assert self.pristine is not None, "only recordings that restore inputs do so"
        self.data.copy_(self.pristine)
