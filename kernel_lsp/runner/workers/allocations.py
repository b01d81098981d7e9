"""Watched allocations: memory that a launch allocates is filled with one byte, 0xFF (NaN) by default, and guarded."""

from typing import Literal, Protocol

import torch
from torch import Tensor

from kernel_lsp.compiler.fakes.operations import Operations
from kernel_lsp.policy import GUARD_BYTES, POISON_BYTE
from kernel_lsp.runner.messages.subject_answers import Trampled
from kernel_lsp.runner.workers.dispatch import TorchOperation, elements_computed, written_by

_aten = torch.ops.aten
_UNSET: set[object] = {
    _aten.empty.memory_format,
    _aten.empty_strided.default,
    _aten.empty_like.default,
    _aten.empty_permuted.default,
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

    Attributes:
        computed: operations of torch that computed something, by name, each with the elements of its largest tensor.
    """

    def __init__(self, listener: Listener | None = None, unset: int = POISON_BYTE) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves its parameter untyped
        self.computed: list[tuple[str, int]] = []
        self._unset = unset
        self._watched: list[tuple[Tensor, Tensor]] = []
        self._listener = listener

    def operation(self, func: TorchOperation, args: tuple[object, ...], named: dict[str, object]) -> object:
        """Run one operation; its allocations are guarded."""
        if func not in _UNSET and func not in _SET:
            return self._changed(func, args, named)
        made = func(*args, **named)
        if not isinstance(made, Tensor) or made.device.type == "meta" or not made.numel():
            return made
        fenced = self._fenced(made)
        if func in _SET:
            fenced.copy_(made)
        if self._listener is not None:
            self._listener.allocated(fenced, func in _SET)
        return fenced

    def _fenced(self, made: Tensor) -> Tensor:
        """Return unset memory between guards, laid out as a tensor is."""
        span = _span(made)
        # Padding follows the far guard, so that the first byte past the tensor is guarded.
        size = -(-(span + 2 * GUARD_BYTES) // 16) * 16
        raw = torch.full((size,), POISON_BYTE, dtype=torch.uint8, device=made.device)
        inner = raw[GUARD_BYTES : GUARD_BYTES + span]
        if self._unset != POISON_BYTE:
            inner.fill_(self._unset)
        fenced = inner.view(made.dtype).as_strided(made.shape, made.stride())
        self._watched.append((raw, fenced))
        return fenced

    def _changed(self, func: TorchOperation, args: tuple[object, ...], named: dict[str, object]) -> object:
        """Run an operation that makes no tensor of its own, but may give some more memory or write to them."""
        tensors, name = written_by(func, args, named), func.overloadpacket.__name__
        if "resize" not in name and "empty" not in name:
            made = func(*args, **named)
            if elements := elements_computed(func, args, named, made):
                self.computed.append((name, elements))
            if self._listener is not None:
                for tensor in tensors:
                    self._listener.written(tensor)
            return made
        before = [(tensor.numel(), tensor.untyped_storage().nbytes()) for tensor in tensors]
        made = func(*args, **named)
        for tensor, (elements, size) in zip(tensors, before, strict=True):
            if tensor.device.type != "meta":
                self._grown(tensor, elements, size)
        return made

    def _grown(self, tensor: Tensor, elements: int, size: int) -> None:
        """Give a tensor that had fewer elements guards of its own; fill memory added behind its `size` bytes."""
        storage = tensor.untyped_storage()
        if tensor.numel() > elements:
            fenced = self._fenced(tensor)
            flat = (tensor.numel(),), (1,)
            fenced.as_strided(*flat)[:elements].copy_(tensor.as_strided(*flat)[:elements])
            tensor.set_(fenced.untyped_storage(), fenced.storage_offset(), fenced.shape, fenced.stride())
            if self._listener is not None:
                self._listener.allocated(tensor, elements > 0)
        elif storage.nbytes() > size:
            torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)[size:].fill_(self._unset)

    def trampled(self) -> tuple[Trampled, ...]:
        """Return the writes outside the tensors made so far."""
        found: list[Trampled] = []
        for raw, fenced in self._watched:
            span = _span(fenced)
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


def _span(tensor: Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last one."""
    return (sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1) * tensor.itemsize


# The first use of a dispatch mode imports hundreds of modules; done here, only the zygote pays for that.
with WatchedAllocations():
    torch.empty(1)
