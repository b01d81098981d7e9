"""Liger's layer norm in float32."""

import torch

CASES = [
    {"rows": 6, "columns": 200},
    {"rows": 4096, "columns": 4096},
    {"rows": 2048, "columns": 1024},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    return (
        torch.randn(rows, columns, device="cuda"),
        torch.randn(columns, device="cuda"),
        torch.randn(columns, device="cuda"),
    )


def reference(x, weight, bias):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-6)


def launch(module, x, weight, bias):
    return module.LigerLayerNormFunction.apply(x, weight, bias, 1e-6)
