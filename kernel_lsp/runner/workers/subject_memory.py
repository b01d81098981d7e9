"""The memory of workers under test, as the oracle maps it to write inputs and to read outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernel_lsp.device.shared_buffer import SharedBuffer, open_buffer
from kernel_lsp.device.tensors import BufferHandle, TensorSpec
from kernel_lsp.policy import GUARD_BYTES, POISON_BYTE
from kernel_lsp.runner.messages.oracle_answers import TrampledInput
from kernel_lsp.runner.spans import WORKER
from kernel_lsp.workload.leaves import own_elements

OUTBOX = "out"
"""The name of the buffer that a worker's outputs lie in."""


@dataclass(slots=True)
class _Opened:
    """One buffer, and the places of the inputs that its guards were written for."""

    buffer: SharedBuffer
    specs: tuple[TensorSpec, ...] | None = None
    targets: list[Tensor] = field(default_factory=list[Tensor])

    def fence(self, specs: tuple[TensorSpec, ...]) -> None:
        """Fill guard regions, and all other bytes that inputs at `specs` will not cover, with 0xFF."""
        self.buffer.poison(specs)
        if self.specs != specs:
            self.specs, self.targets = specs, [own_elements(self.buffer.view(spec)) for spec in specs]

    def write(self, values: Sequence[Tensor]) -> None:
        """Copy the tensors' own elements to their places; the GPU may finish later."""
        for target, tensor in zip(self.targets, values, strict=True):
            target.copy_(own_elements(tensor))


class SubjectMemory:
    """The buffers of all workers under test."""

    def __init__(self, device: str) -> None:
        """Take the device, `cuda` or `cpu`."""
        self._device = device
        self._opened: dict[str, dict[str, _Opened]] = {}

    def attach(self, subject: str, buffers: Sequence[str], nbytes: int, handle: BufferHandle) -> None:
        """Open an allocation of a worker that holds buffers of `nbytes` one after another."""
        whole, opened = open_buffer(handle), self._opened.setdefault(subject, {})
        for number, buffer in enumerate(buffers):
            opened[buffer] = _Opened(SharedBuffer(whole.data[number * nbytes : (number + 1) * nbytes], handle, whole))

    def detach(self, subject: str, buffers: Sequence[str] = ()) -> None:
        """Close buffers of a worker; all of them if none is named."""
        if not buffers:
            self._opened.pop(subject, None)
        for buffer in buffers:
            self._opened.get(subject, {}).pop(buffer, None)

    def fill(
        self, subject: str, buffers: Sequence[str], specs: tuple[TensorSpec, ...], values: Sequence[Tensor]
    ) -> None:
        """Write inputs into buffers, with guard bytes around each."""
        for name in buffers:
            opened = self._opened[subject][name]
            opened.fence(specs)
            opened.write(values)
        self.synchronize()

    def renew(self, subject: str, buffer: str, specs: tuple[TensorSpec, ...], values: Sequence[Tensor]) -> None:
        """Write inputs into a buffer, with new guards only if the layout changed; `synchronize` waits for the end."""
        opened = self._opened[subject][buffer]
        if opened.specs != specs:
            opened.fence(specs)
        opened.write(values)

    def output(self, subject: str, spec: TensorSpec) -> Tensor:
        """Return an output that a worker has published."""
        return self._opened[subject][OUTBOX].buffer.view(spec)

    def view(self, subject: str, buffer: str, spec: TensorSpec) -> Tensor:
        """Return a tensor in a worker's buffer."""
        return self._opened[subject][buffer].buffer.view(spec)

    def trampled(
        self, subject: str, buffer: str, specs: Sequence[TensorSpec], names: Sequence[str]
    ) -> tuple[TrampledInput, ...]:
        """Return the writes past ends of the inputs at `specs`, named by `names`."""
        data, found = self._opened[subject][buffer].buffer.data, list[TrampledInput]()
        for name, spec in zip(names, specs, strict=True):
            end = spec.offset + spec.span
            before = data[spec.offset - GUARD_BYTES : spec.offset] != POISON_BYTE
            past = data[end : end + GUARD_BYTES] != POISON_BYTE
            if bool(before.any()):
                away = GUARD_BYTES - int(before.to(torch.uint8).argmax())
                found.append(TrampledInput(name, "before", away, int(before.sum())))
            if bool(past.any()):
                found.append(TrampledInput(name, "past", int(past.to(torch.uint8).argmax()), int(past.sum())))
        return tuple(found)

    def synchronize(self) -> None:
        """Wait until the GPU has finished its work."""
        if self._device == "cuda":
            with WORKER.span("wait for the GPU", gpu=True):
                torch.cuda.synchronize()
