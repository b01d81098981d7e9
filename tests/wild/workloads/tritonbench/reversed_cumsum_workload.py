"""flash-linear-attention's running sums backwards, tuned when they are first called."""

import torch

CASES = [
    {"batch": 1, "heads": 2, "tokens": 70, "size": 40},
    {"batch": 4, "heads": 16, "tokens": 2048, "size": 64},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(batch, heads, tokens, size):
    return torch.randn(batch, heads, tokens, size, device="cuda")


def reference(x):
    return x.flip(2).cumsum(dim=2).flip(2)


def launch(module, x):
    return module.chunk_global_reversed_cumsum_vector(x)
