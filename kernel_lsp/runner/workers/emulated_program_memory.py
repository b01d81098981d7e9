"""The memory of a whole program on the emulator: buffers that end with their tensors. Worker processes only."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from threading import RLock
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from kernel_lsp.compiler.fakes.operations import Operations
from kernel_lsp.emulate.memory import Buffer
from kernel_lsp.policy import POISON_BYTE
from kernel_lsp.runner.workers.dispatch import TorchOperation, written_by
from kernel_lsp.runner.workers.emulated_memory import EmulatedMemory, note_elements
from kernel_lsp.runner.workers.unfilled import FACTORIES

_UNTYPED: Any = UntypedStorage  # torch's stubs leave out half of it
_FIRST_SWEEP = 256
_BEYOND_TORCH = ("numpy", "__array__", "__dlpack__")  # who has such a view may write without torch's knowledge


class ProgramMemory(EmulatedMemory):
    """The tensors that a program's kernels can reach. No tensor is kept alive: a buffer goes when its storage does.

    Attributes:
        turn: held by the thread that launches, allocates or writes.
    """

    def __init__(self) -> None:
        super().__init__((), ())
        self._storages: dict[Buffer, Any] = {}  # with a `StorageWeakRef`, which has no types
        self._sweep_at = _FIRST_SWEEP
        self.turn = RLock()

    def sweep(self) -> None:
        """Release the buffers whose storage is gone, or has been moved."""
        for buffer in [buffer for buffer in self._storages if not self._lasts(buffer)]:
            self.buffers.release(buffer)
            del self._storages[buffer]
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._storages))

    def _lasts(self, buffer: Buffer) -> bool:
        """Return True while the storage of a buffer is there and lies where it did."""
        reference = self._storages.get(buffer)
        storage = None if reference is None else _UNTYPED._new_with_weak_ptr(reference.cdata)
        return storage is not None and (storage.data_ptr(), storage.nbytes()) == (buffer.address, buffer.size)

    def allocated(self, tensor: Tensor, initialised: bool) -> None:
        """Make a buffer for the storage of a tensor from a factory function; fill it with `POISON_BYTE` if unset."""
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return
        if not initialised:
            _UNTYPED.fill_(storage, POISON_BYTE)
        found = self.buffers.find(storage.data_ptr())
        if found is not None or len(self._storages) >= self._sweep_at:
            self.sweep()
        self._attach(tensor, initialised)

    def reach(self, tensor: Tensor) -> None:
        """Ensure that a tensor lies in a buffer, and in none that an earlier tensor has left in its place."""
        found = self.buffers.find(tensor.data_ptr()) if tensor.numel() else None
        if tensor.numel() and (found is None or not self._lasts(found)):
            self._attach(tensor, True)

    def name(self, address: int, name: str) -> None:
        """Name the buffer at an address after the parameter that receives it in the present launch."""
        buffer = self.buffers.find(address)
        if buffer in self._storages:
            buffer.name, buffer.start = name, address - buffer.address

    def restore(self, buffers: Sequence[Buffer]) -> None:
        """Do nothing: a replay reaches the tensors that it needs."""

    def _attach(self, tensor: Tensor, initialised: bool) -> None:
        storage = tensor.untyped_storage()
        overlapping = self.buffers.buffers_within(storage.data_ptr(), storage.nbytes())
        for buffer in overlapping:  # e.g. of memory that another storage shares
            self.buffers.release(buffer)
            self._storages.pop(buffer, None)
        made = self.buffers.attach("scratch", storage.data_ptr(), storage.nbytes(), initialised=initialised)
        note_elements(made, tensor)
        self._storages[made] = StorageWeakRef(storage)


class ProgramOperations:
    """Modes that tell a program's memory what torch allocates and writes, in the thread that enters them."""

    def __init__(self, memory: ProgramMemory) -> None:
        self._modes = _Operations(memory), _Views(memory)
        self._entered = ExitStack()

    def __enter__(self) -> None:
        for mode in self._modes:
            self._entered.enter_context(mode)

    def __exit__(self, *_: object) -> None:
        self._entered.close()


class _Operations(Operations):
    def __init__(self, memory: ProgramMemory) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves its parameter untyped
        self._memory = memory

    def operation(self, func: TorchOperation, args: tuple[Any, ...], named: dict[str, Any]) -> object:
        """Run the operation, and note its allocation or its writes."""
        made = func(*args, **named)
        initialised = FACTORIES.get(func.overloadpacket.__name__)
        if initialised is not None:
            if isinstance(made, Tensor) and type(made) is Tensor and _is_plain(made):
                with self._memory.turn:
                    self._memory.allocated(made, initialised)
            return made
        for tensor in written_by(func, args, named):
            with self._memory.turn:
                self._memory.written(tensor)
        return made


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.device.type == "cpu"


class _Views(TorchFunctionMode):
    def __init__(self, memory: ProgramMemory) -> None:
        super().__init__()
        self._memory = memory

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        if getattr(func, "__name__", "") in _BEYOND_TORCH and args and isinstance(args[0], Tensor):
            self._memory.written(args[0])
        return func(*args, **(kwargs or {}))
