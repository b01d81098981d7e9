"""Liger's sum of the norms of a row, its square and its cube."""

import torch

CASES = [
    {"rows": 6, "columns": 200},
    {"rows": 4096, "columns": 4096},
    {"rows": 2048, "columns": 1024},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda"), torch.rand(3, device="cuda"), torch.rand(1, device="cuda")


def reference(x, weight, bias):
    def normed(y):
        return y * torch.rsqrt(y.square().mean(dim=-1, keepdim=True) + 1e-6)

    return weight[0] * normed(x**3) + weight[1] * normed(x**2) + weight[2] * normed(x) + bias


def launch(module, x, weight, bias):
    return module.LigerPolyNormFunction.apply(x, weight, bias)
