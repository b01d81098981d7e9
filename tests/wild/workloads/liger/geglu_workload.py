"""Liger's gate in bfloat16: the GELU's tangent form of one tensor times another."""

import torch

CASES = [
    {"rows": 6, "columns": 200},
    {"rows": 4096, "columns": 8192},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), torch.randn(
        rows, columns, device="cuda", dtype=torch.bfloat16
    )


def reference(a, b):
    return torch.nn.functional.gelu(a, approximate="tanh") * b


def launch(module, a, b):
    return module.LigerGELUMulFunction.apply(a, b)
