"""Liger's gate of an older version: SiLU of one tensor times another."""

import torch

CASES = [
    {"rows": 7, "columns": 130},
    {"rows": 4096, "columns": 1024},
    {"rows": 2048, "columns": 4096},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda"), torch.randn(rows, columns, device="cuda")


def reference(a, b):
    return torch.nn.functional.silu(a) * b


def launch(module, a, b):
    return module.swiglu_forward(a, b)[2]
