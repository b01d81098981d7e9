"""FlagGems' mean over one dimension."""

import torch

CASES = [
    {"shape": [5, 9, 13]},
    {"shape": [64, 256, 512]},
    {"shape": [16, 1024, 256]},
]
CONTRACT = {"contiguous": True}


def inputs(shape):
    return torch.randn(shape, device="cuda")


def reference(x):
    return x.mean(dim=1)


def launch(module, x):
    return module.mean_dim(x, 1)
