"""The memory of kernels on the emulator: a buffer for each tensor they reach, without a copy. Worker processes only."""

from collections.abc import Sequence

from torch import Tensor

from kernel_lsp.emulate.machine import Result
from kernel_lsp.emulate.memory import Buffer, GlobalMemory
from kernel_lsp.errors import WorkloadError


class EmulatedMemory:
    """The tensors of one run of a workload: its inputs, what factory functions made, and whatever launches are given.

    Attributes:
        buffers: the emulator's memory.
        obscured: whether blocks were left out of a launch. What torch computes from then on, or what blocks write to,
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
                self.buffers.attach(name, value.data_ptr(), _span(value), initialised=True, owner=value)

    def allocated(self, tensor: Tensor, initialised: bool) -> None:
        """Make a buffer of what a factory function made."""
        if tensor.numel():
            made = (tensor.data_ptr(), _span(tensor))
            buffer = self.buffers.attach("scratch", *made, initialised=initialised, owner=tensor)
            self._unnamed.append(buffer)
            self._made.add(buffer)

    def written(self, tensor: Tensor) -> None:
        """Take note that torch has written to a tensor."""
        buffer = self.buffers.find(tensor.data_ptr()) if tensor.numel() else None
        if buffer is None:
            return
        if self.obscured:  # it may have been computed from what is unknown
            buffer.forget()
        else:
            buffer.initialise(tensor.data_ptr() - buffer.address, _span(tensor))

    def reach(self, tensor: Tensor) -> None:
        """Make sure that a tensor lies in a buffer."""
        if tensor.numel() and self.buffers.find(tensor.data_ptr()) is None:  # the result of an operation of torch's
            storage = tensor.untyped_storage()
            made = (storage.data_ptr(), storage.nbytes())
            self._unnamed.append(self.buffers.attach("scratch", *made, initialised=not self.obscured, owner=tensor))

    def name(self, address: int, name: str) -> None:
        """Name the buffer at an address by the first parameter that it is passed as."""
        buffer = self.buffers.find(address)
        if buffer is not None and buffer in self._unnamed:
            buffer.name = name
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
        """Take note that host code sets these bytes to a value of its own; raises as `inside`."""
        buffer = self.inside(address, nbytes)
        buffer.initialise(address - buffer.address, nbytes)

    def copied(self, to: int, source: int, nbytes: int) -> None:
        """Take note that host code copies bytes; raises as `inside`."""
        self.inside(source, nbytes)
        if self.obscured:
            self.inside(to, nbytes).forget()
        else:
            self.filled(to, nbytes)

    def restore(self, buffers: Sequence[Buffer]) -> None:
        """Take in what an earlier run reached, as the replay of a graph that was captured then needs it."""
        for buffer in buffers:
            there = self.buffers.buffers
            if not any(buffer.address < other.end and other.address < buffer.end for other in there):
                initialised = not self.obscured
                self.buffers.attach(buffer.name, buffer.address, buffer.size, initialised=initialised, owner=buffer)

    def obscure(self, result: Result) -> None:
        """Forget what the blocks that were left out of a launch may have written.

        Those are the buffers that the other blocks wrote to and all that was made to be written to. Where the others
        did not run to their end that says little, and everything is forgotten.
        """
        self.obscured = True
        for buffer in self.buffers.buffers:
            if buffer.writable and (result.ended or buffer in result.written or buffer in self._made):
                buffer.forget()


def _span(tensor: Tensor) -> int:
    """Return the bytes from the first element of a tensor to its last."""
    reach = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return reach * tensor.itemsize
