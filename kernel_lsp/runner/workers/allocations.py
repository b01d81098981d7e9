"""Watched allocations: memory that a launch allocates is filled with one byte, 0xFF (NaN) by default, and guarded."""

from typing import Literal, Protocol

import torch
from torch import Tensor

from kernel_lsp.compiler.fakes.operations import Operations
from kernel_lsp.policy import GUARD_BYTES, POISON_BYTE
from kernel_lsp.runner.messages.subject_answers import Trampled
from kernel_lsp.runner.workers.dispatch import TorchOperation, written_by

_aten = torch.ops.aten
_UNSET: set[object] = {
    _aten.empty.memory_format,
    _aten.empty_strided.default,
    _aten.empty_like.default,
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
}
_SET: set[object] = {
    _aten.zeros.default,
    _aten.zeros_like.default,
    _aten.new_zeros.default,
    _aten.ones.default,
    _aten.ones_like.default,
    _aten.new_ones.default,
    _aten.full.default,
    _aten.full_like.default,
    _aten.new_full.default,
}


class Listener(Protocol):
    """Listens to what torch does to memory."""

    def allocated(self, tensor: Tensor, initialised: bool) -> None:
        """Note that a factory function made `tensor`."""

    def written(self, tensor: Tensor) -> None:
        """Note that an operation of torch wrote to all of `tensor`."""


class WatchedAllocations(Operations):
    """While active, puts guards around each tensor that a factory function of torch makes.

    Memory that such a function leaves unset is filled with the byte `unset`.
    """

    def __init__(self, listener: Listener | None = None, unset: int = POISON_BYTE) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves its parameter untyped
        self._unset = unset
        self._watched: list[tuple[Tensor, Tensor]] = []
        self._listener = listener

    def operation(self, func: TorchOperation, args: tuple[object, ...], named: dict[str, object]) -> object:
        """Run one operation; its allocations are guarded."""
        made = func(*args, **named)
        if func not in _UNSET and func not in _SET:
            if self._listener is not None:
                for tensor in written_by(func, args, named):
                    self._listener.written(tensor)
            return made
        if not isinstance(made, Tensor) or made.device.type == "meta" or not made.numel():
            return made
        span = (sum((n - 1) * s for n, s in zip(made.shape, made.stride(), strict=True)) + 1) * made.itemsize
        # Padding follows the far guard, so that the first byte past the tensor is guarded.
        size = -(-(span + 2 * GUARD_BYTES) // 16) * 16
        raw = torch.full((size,), POISON_BYTE, dtype=torch.uint8, device=made.device)
        fenced = raw[GUARD_BYTES : GUARD_BYTES + span].view(made.dtype).as_strided(made.shape, made.stride())
        if func in _SET:
            fenced.copy_(made)
        elif self._unset != POISON_BYTE:
            raw[GUARD_BYTES : GUARD_BYTES + span].fill_(self._unset)
        self._watched.append((raw, fenced))
        if self._listener is not None:
            self._listener.allocated(fenced, func in _SET)
        return fenced

    def trampled(self) -> tuple[Trampled, ...]:
        """Return the writes outside the tensors made so far."""
        found: list[Trampled] = []
        for raw, fenced in self._watched:
            span = (sum((n - 1) * s for n, s in zip(fenced.shape, fenced.stride(), strict=True)) + 1) * fenced.itemsize
            before, after = raw[:GUARD_BYTES], raw[GUARD_BYTES + span :]
            sides: tuple[tuple[Literal["before", "past"], Tensor], ...] = (("before", before), ("past", after))
            for side, guard in sides:
                touched = guard != POISON_BYTE
                if bool(touched.any()):
                    first = int(touched.to(torch.uint8).argmax())
                    away = first if side == "past" else GUARD_BYTES - first
                    element = fenced.numel() + away // fenced.itemsize if side == "past" else -1
                    found.append(Trampled(tuple(fenced.shape), side, away, element, int(touched.sum())))
        return tuple(found)


# The first use of a dispatch mode imports hundreds of modules; done here, only the zygote pays for that.
with WatchedAllocations():
    torch.empty(1)
