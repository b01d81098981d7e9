"""Liger's root mean square norm as Llama has it, in bfloat16."""

import torch

CASES = [
    {"rows": 6, "columns": 200},
    {"rows": 4096, "columns": 4096},
    {"rows": 2048, "columns": 1024},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), torch.randn(
        columns, device="cuda", dtype=torch.bfloat16
    )


def reference(x, weight):
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * weight


def launch(module, x, weight):
    return module.LigerRMSNormFunction.apply(x, weight, 1e-6)
