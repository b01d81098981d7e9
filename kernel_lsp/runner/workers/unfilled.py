"""Track allocations, without filling them, in a run of which only some blocks are emulated. Worker processes only."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kernel_lsp.compiler.fakes.operations import Operations
from kernel_lsp.emulate.errors import Unfinished
from kernel_lsp.runner.workers.dispatch import TorchOperation, written_by
from kernel_lsp.runner.workers.emulated_memory import EmulatedMemory

FACTORIES = {  # name: True if the new tensor holds values
    **dict.fromkeys(("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"), False),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones"), True),
    **dict.fromkeys(("full", "full_like", "new_full"), True),
}
_READS = ("tolist", "numpy", "__array__")  # these bypass the dispatcher
_DECIDING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Unfilled:
    """Report to `memory` what torch allocates and writes in the block; torch may not branch on unknown values."""

    def __init__(self, memory: EmulatedMemory) -> None:
        self._modes = _Known(memory), _Reads(memory)
        self._entered = ExitStack()

    def __enter__(self) -> None:
        self._entered.enter_context(torch.no_grad())
        for mode in self._modes:
            self._entered.enter_context(mode)

    def __exit__(self, *_: object) -> None:
        self._entered.close()


class _Known(Operations):
    def __init__(self, memory: EmulatedMemory) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves its parameter untyped
        self._memory = memory

    def operation(self, func: TorchOperation, args: tuple[Any, ...], named: dict[str, Any]) -> object:
        """Run the operation, unless its control flow depends on unknown values."""
        if self._memory.obscured and not _DECIDING.isdisjoint(func.tags):
            _stop(func.overloadpacket.__name__)
        made = func(*args, **named)
        initialised = FACTORIES.get(func.overloadpacket.__name__)
        if initialised is not None and isinstance(made, Tensor) and made.device.type == "cpu":
            self._memory.allocated(made, initialised)
        for tensor in written_by(func, args, named):
            self._memory.written(tensor)
        return made


class _Reads(TorchFunctionMode):
    def __init__(self, memory: EmulatedMemory) -> None:
        super().__init__()
        self._memory = memory

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        name = getattr(func, "__name__", "")
        if self._memory.obscured and name in _READS:
            _stop(name)
        return func(*args, **(kwargs or {}))


def _stop(name: str) -> None:
    raise Unfinished(f"`{name}` reads what blocks that were left out would have written")
