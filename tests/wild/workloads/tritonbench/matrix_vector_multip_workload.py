"""FlagGems' product of a matrix and a vector, tuned when it is first called."""

import torch

CASES = [
    {"rows": 9, "columns": 70},
    {"rows": 4096, "columns": 4096},
    {"rows": 1024, "columns": 8192},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda"), torch.randn(columns, device="cuda")


def reference(a, x):
    return a @ x


def launch(module, a, x):
    return module.mv(a, x)
