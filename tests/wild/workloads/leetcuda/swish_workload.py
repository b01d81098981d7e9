"""LeetCUDA's product with the logistic function, with one or four elements a thread."""

import torch

CASES = [
    {"count": 4096},
    {"count": 16777216},
]
CONTRACT = {"contiguous": True, "aligned": 16}
VERSION = 1


def inputs(count):
    return torch.randn(count, device="cuda")


def reference(x):
    return torch.nn.functional.silu(x)


def launch(module, x):
    y = torch.empty_like(x)
    name, each = {1: ("f32", 1), 2: ("f32x4", 4)}[VERSION]
    module[f"swish_{name}_kernel"][x.numel() // (256 * each), 256](x, y, x.numel())
    return y
