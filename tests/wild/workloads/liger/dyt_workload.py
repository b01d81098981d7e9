"""Liger's dynamic tangent, which stands in a norm's place."""

import torch

CASES = [
    {"rows": 6, "columns": 200},
    {"rows": 4096, "columns": 4096},
    {"rows": 2048, "columns": 1024},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    x = torch.randn(rows, columns, device="cuda")
    return x, torch.rand(1, device="cuda"), torch.randn(columns, device="cuda"), torch.randn(columns, device="cuda")


def reference(x, alpha, gamma, beta):
    return torch.tanh(alpha * x) * gamma + beta


def launch(module, x, alpha, gamma, beta):
    return module.LigerDyTFunction.apply(x, alpha, gamma, beta)
