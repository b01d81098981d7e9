"""lightllm's root mean square norm in float16."""

import torch

CASES = [
    {"rows": 7, "columns": 130},
    {"rows": 4096, "columns": 1024},
    {"rows": 2048, "columns": 4096},
]
CONTRACT = {"contiguous": True}


def inputs(rows, columns):
    x = torch.randn(rows, columns, device="cuda", dtype=torch.float16)
    return x, torch.randn(columns, device="cuda", dtype=torch.float16)


def reference(x, weight):
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5) * weight


def launch(module, x, weight):
    return module.rmsnorm_forward(x, weight, 1e-5)
