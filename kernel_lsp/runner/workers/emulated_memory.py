"""The memory of emulated kernels: a buffer for each tensor that they reach, without a copy. Worker processes only."""

from collections.abc import Sequence

from torch import Tensor

from kernel_lsp.emulate.machine import LaunchResult
from kernel_lsp.emulate.memory import Buffer, GlobalMemory
from kernel_lsp.errors import WorkloadError


class EmulatedMemory:
    """The tensors of one run of a workload: its inputs, tensors from factory functions, and arguments of launches.

    Attributes:
        buffers: the emulator's memory.
        obscured: True once blocks were left out of a launch. All that torch computes or blocks write from then on
            is unknown.
    """

    def __init__(self, names: Sequence[str], inputs: Sequence[object]) -> None:
        self.buffers = GlobalMemory()
        self.obscured = False
        self._unnamed: list[Buffer] = []
        self._made: set[Buffer] = set()
        for number, value in enumerate(inputs):
            if isinstance(value, Tensor) and value.numel():
                name = names[number] if number < len(names) else f"input {number}"
                made = (value.data_ptr(), _span(value))
                buffer = self.buffers.attach(name, *made, initialised=True, owner=value)
                note_elements(buffer, value)

    def allocated(self, tensor: Tensor, initialised: bool) -> None:
        """Make a buffer for a tensor from a factory function."""
        if tensor.numel():
            made = (tensor.data_ptr(), _span(tensor))
            buffer = self.buffers.attach("scratch", *made, initialised=initialised, owner=tensor)
            note_elements(buffer, tensor)
            self._unnamed.append(buffer)
            self._made.add(buffer)

    def written(self, tensor: Tensor) -> None:
        """Note that torch has written to a tensor."""
        buffer = self.buffers.find(tensor.data_ptr()) if tensor.numel() else None
        if buffer is None:
            return
        if self.obscured:  # the value may have been computed from unknown ones
            buffer.forget()
        else:
            buffer.initialise(tensor.data_ptr() - buffer.address, _span(tensor))

    def reach(self, tensor: Tensor) -> None:
        """Ensure that a tensor lies in a buffer."""
        if tensor.numel() and self.buffers.find(tensor.data_ptr()) is None:  # a result of a torch operation
            storage = tensor.untyped_storage()
            made = (storage.data_ptr(), storage.nbytes())
            buffer = self.buffers.attach("scratch", *made, initialised=not self.obscured, owner=tensor)
            note_elements(buffer, tensor)
            self._unnamed.append(buffer)

    def name(self, address: int, name: str) -> None:
        """Name the buffer at an address after the first parameter that receives it."""
        buffer = self.buffers.find(address)
        if buffer is not None and buffer in self._unnamed:
            buffer.name, buffer.start = name, address - buffer.address
            self._unnamed.remove(buffer)

    def inside(self, address: int, nbytes: int) -> Buffer:
        """Return the buffer that holds these bytes.

        Raises:
            WorkloadError: none holds all of them.
        """
        buffer = self.buffers.find(address)
        if buffer is None or address + nbytes > buffer.end:
            raise WorkloadError(f"host code copies or sets {nbytes} bytes that do not all lie in one tensor")
        return buffer

    def filled(self, address: int, nbytes: int) -> None:
        """Note that host code sets these bytes to a value; raises as `inside`."""
        buffer = self.inside(address, nbytes)
        buffer.initialise(address - buffer.address, nbytes)

    def copied(self, to: int, source: int, nbytes: int) -> None:
        """Note that host code copies bytes; raises as `inside`."""
        self.inside(source, nbytes)
        if self.obscured:
            self.inside(to, nbytes).forget()
        else:
            self.filled(to, nbytes)

    def restore(self, buffers: Sequence[Buffer]) -> None:
        """Add the buffers that an earlier run reached; a graph captured then needs them for its replay."""
        for buffer in buffers:
            there = self.buffers.buffers
            if not any(buffer.address < other.end and other.address < buffer.end for other in there):
                initialised = not self.obscured
                made = (buffer.name, buffer.address, buffer.size)
                again = self.buffers.attach(*made, initialised=initialised, owner=buffer)
                again.item, again.gaps, again.start = buffer.item, buffer.gaps, buffer.start

    def obscure(self, result: LaunchResult) -> None:
        """Mark as unknown what the omitted blocks of a launch may have written.

        These are the buffers that the other blocks wrote to, and all outputs. If the other blocks did not run to their
        end, they tell little, and every writable buffer becomes unknown.
        """
        self.obscured = True
        for buffer in self.buffers.buffers:
            if buffer.writable and (result.ended or buffer in result.written or buffer in self._made):
                buffer.forget()


def note_elements(buffer: Buffer, tensor: Tensor) -> None:
    """Let messages about a buffer speak of the elements of a tensor that lies in it."""
    buffer.item = tensor.itemsize
    buffer.gaps = tensor.numel() * tensor.itemsize != buffer.size


def _span(tensor: Tensor) -> int:
    """Return the bytes from the first element of a tensor to its last."""
    reach = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return reach * tensor.itemsize
