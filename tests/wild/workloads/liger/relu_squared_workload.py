"""Liger's squared rectifier in bfloat16."""

import torch

CASES = [
    {"rows": 6, "columns": 200},
    {"rows": 4096, "columns": 4096},
    {"rows": 2048, "columns": 1024},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)


def reference(x):
    return torch.relu(x).square()


def launch(module, x):
    return module.LigerReLUSquaredFunction.apply(x)
