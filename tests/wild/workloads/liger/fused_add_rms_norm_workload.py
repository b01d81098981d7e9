"""Liger's sum with a residual and its root mean square norm, in bfloat16; both are returned."""

import torch

CASES = [
    {"rows": 6, "columns": 200},
    {"rows": 4096, "columns": 4096},
    {"rows": 2048, "columns": 1024},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    return (
        x,
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(columns, device="cuda", dtype=torch.bfloat16),
    )


def reference(x, residual, weight):
    total = x + residual
    return total * torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + 1e-6) * weight, total


def launch(module, x, residual, weight):
    return module.LigerFusedAddRMSNormFunction.apply(x, residual, weight, 1e-6)
