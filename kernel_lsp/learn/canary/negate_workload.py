"""The workload of a canary: no byte can be left out, and there is nothing else to save."""

from typing import Any

import torch

CASES = [{"vectors": 1003}, {"vectors": 1 << 24}]
CONTRACT = {"contiguous": True, "aligned": 16}


def inputs(vectors: int) -> tuple[torch.Tensor, ...]:
    """Return numbers."""
    return (torch.randn(4 * vectors, device="cuda"),)


def reference(x: torch.Tensor) -> torch.Tensor:
    """Return them negated."""
    return -x


def launch(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Negate with a thread for each 16 bytes."""
    out = torch.empty_like(x)
    vectors = x.numel() // 4
    module.negate[((vectors + 255) // 256,), (256,)](x, out, vectors)
    return out
