"""Memory into which a version's outputs are copied, where the oracle reads them. Worker processes only."""

from collections.abc import Sequence

from torch import Tensor

from kernel_lsp.device.shared_buffer import SharedBuffer, make_buffer, row_major
from kernel_lsp.device.tensors import TensorSpec
from kernel_lsp.runner.messages.subject_answers import PublishedOutputs


class Outbox:
    """Memory for outputs, which grows when they need more."""

    def __init__(self, device: str, retired: list[SharedBuffer]) -> None:
        """Keep memory that is outgrown among the `retired`, where the oracle may still have it open."""
        self._device, self._retired = device, retired
        self._buffer: SharedBuffer | None = None

    def publish(self, outputs: Sequence[Tensor]) -> PublishedOutputs:
        """Enqueue copies of outputs, and return where each will lie; the caller waits for the GPU."""
        specs: list[TensorSpec] = []
        size = 0
        for output in outputs:
            size = -(-size // 512) * 512
            specs.append(row_major(output, size))
            size += specs[-1].span
        fresh = self._buffer is None or self._buffer.data.numel() < size
        if fresh:
            self._retired += [self._buffer] if self._buffer else []
            self._buffer = make_buffer(max(size, 1), self._device)
        assert self._buffer is not None
        for output, spec in zip(outputs, specs, strict=True):
            self._buffer.view(spec).copy_(output)
        strides = tuple(tuple(output.stride()) for output in outputs)
        return PublishedOutputs(tuple(specs), strides, self._buffer.handle if fresh else None)

    def free(self) -> None:
        """Let go of the memory."""
        self._buffer = None
