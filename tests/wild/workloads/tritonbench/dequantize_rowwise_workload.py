"""bitsandbytes' numbers of eight bits, scaled by the largest of their row, in float16."""

import torch

CASES = [
    {"rows": 7, "columns": 130},
    {"rows": 4096, "columns": 1024},
    {"rows": 2048, "columns": 4096},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(rows, columns):
    x = torch.randint(-127, 128, (rows, columns), device="cuda", dtype=torch.int8)
    return x, torch.rand(rows, device="cuda", dtype=torch.float16) + 0.5


def reference(x, largest):
    return (largest[:, None] * x / 127).to(largest.dtype)


def launch(module, x, largest):
    return module.dequantize_rowwise(x, largest)
