"""The first softmax of Triton's own tutorial: one program for each row."""

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
    return torch.softmax(x, dim=-1)


def launch(module, x):
    return module.softmax(x)
