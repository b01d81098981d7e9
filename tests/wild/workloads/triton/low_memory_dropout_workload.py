"""Triton's tutorial 04: dropout with a mask that is given."""

import torch

CASES = [
    {"size": 1500},
    {"size": 1 << 20},
    {"size": 1 << 24},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(size):
    x = torch.randn(size, device="cuda")
    keep = (torch.rand(size, device="cuda") > 0.5).to(torch.int32)
    return x, keep, 0.5


def reference(x, keep, p):
    return torch.where(keep != 0, x / (1 - p), 0.0)


def launch(module, x, keep, p):
    return module.dropout(x, keep, p)
