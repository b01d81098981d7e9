"""Liger's gate in bfloat16: SiLU of one tensor times another."""

import torch
import torch.distributed.tensor  # the file takes it for imported, as it is by others of its package

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
    return torch.nn.functional.silu(a) * b


def launch(module, a, b):
    return module.LigerSiLUMulFunction.apply(a, b)
