"""llm.c's permutation of four dimensions, at the size of its own benchmark."""

import torch

CASES = [
    {"sizes": [3, 5, 7, 9]},
    {"sizes": [24, 42, 20, 32]},
    {"sizes": [32, 64, 64, 64]},
]
CONTRACT = {"contiguous": True}


def inputs(sizes):
    return torch.randn(sizes, device="cuda")


def reference(x):
    return x.permute(3, 2, 0, 1).contiguous()


def launch(module, x):
    a, b, c, d = x.shape
    out = x.new_empty(d, c, a, b)
    module.permute_kernel[-(-x.numel() // 256), 256](x, out, a, b, c, d)
    return out
