"""Rows divided by their length, as attention with normalised keys does."""

import torch

CASES = [
    {"rows": 7, "columns": 130},
    {"rows": 4096, "columns": 1024},
    {"rows": 2048, "columns": 4096},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda")


def reference(x):
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + 1e-6)


def launch(module, x):
    return module._l2_norm_fwd(x)
