"""The cosine of each element."""

import torch

CASES = [
    {"count": 1000},
    {"count": 4194304},
]
CONTRACT = {"contiguous": True}


def inputs(count):
    return torch.randn(count, device="cuda")


def reference(x):
    return torch.cos(x)


def launch(module, x):
    return module.cos(x)
