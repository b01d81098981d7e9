"""Kernels of our own (`device/distance.cu`, `device/probes.cu`) for what `comparison` computes by tensor operations.

Errors take 12 bytes of memory traffic for each element of a float32 output, where tensor operations one after another
take 170; a checksum takes 4, where they take 40 and make a copy of twice the output's size.
"""

import math

import torch
from torch import Tensor

from kernel_lsp.device.driver import LoadedModule
from kernel_lsp.runner.workers.comparison import ErrorReading

_THREADS = 256
_EACH = 4  # loads of each thread at once
_MOST_BLOCKS = 2048
_ALIGNED = 16  # bytes that a thread of the checksum loads at once
_SIGNIFICANT = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""Bits of precision of the types that the kernel reads."""


class FusedMeasure:
    """Measures floating-point outputs against float64 references on the GPU."""

    def __init__(self, module: LoadedModule) -> None:
        self._module = module

    def __call__(self, actual: Tensor, expected: Tensor, rms_of_expected: float, allowed: float) -> ErrorReading | None:
        """Return what `comparison.read` returns; None for types that the kernel does not support.

        `actual` is of any shape and stride, `expected` contiguous and of that shape.
        """
        if actual.dtype not in _SIGNIFICANT or expected.dtype is not torch.float64 or not actual.numel():
            return None
        eps, count = torch.finfo(actual.dtype).eps, actual.numel()
        blocks = min(-(-count // (_THREADS * _EACH)), _MOST_BLOCKS)
        figures = torch.empty((blocks, 2), dtype=torch.float64, device=actual.device)
        places = torch.empty((blocks, 2), dtype=torch.int64, device=actual.device)
        self._module[f"distance_{str(actual.dtype).removeprefix('torch.')}"][blocks, _THREADS](
            *(actual.contiguous(), expected, count, eps, rms_of_expected * eps, _beyond(actual.dtype), allowed),
            *(figures, places),
        )
        largest, squares = float(figures[:, 0].max()), float(figures[:, 1].sum())
        wrong, first = int(places[:, 0].sum()), int(places[:, 1].min())
        return ErrorReading(largest, squares, wrong, first if wrong else None)


class FusedChecksum:
    """Sums a tensor's bytes on the GPU, each weighted by its place, in one pass and without extra memory.

    The weights cannot be known without `salt` (up to 62 bits).
    """

    def __init__(self, module: LoadedModule, salt: int = 0) -> None:
        self._module, self._salt = module, salt

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return the sum as a tensor of one int64, computed on the current stream."""
        total = torch.zeros((), dtype=torch.int64, device=tensor.device)
        self.add(tensor, total, self._salt)
        return total

    def add(self, tensor: Tensor, total: Tensor, salt: int) -> None:
        """Add the sum under another `salt` to `total`, on the current stream; a graph may capture it."""
        flat = tensor.detach().contiguous()
        if flat.data_ptr() % _ALIGNED:
            flat = flat.clone()
        if flat.nbytes:
            blocks = min(-(-flat.nbytes // (_ALIGNED * _THREADS * _EACH)), _MOST_BLOCKS)
            self._module["kernel_lsp_checksum"][blocks, _THREADS](flat, flat.nbytes, salt, total)


def _beyond(dtype: torch.dtype) -> float:
    """Return the smallest number that rounds to infinity in `dtype`; infinity if rounding to float32 decides."""
    if dtype in (torch.float64, torch.float32):
        return math.inf
    largest = torch.finfo(dtype).max
    _, exponent = math.frexp(largest)
    return largest + math.ldexp(0.5, exponent - _SIGNIFICANT[dtype])
