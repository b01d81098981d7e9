"""llm.c's scores of causal attention: the lower triangle of Q K^T, from one tensor of queries, keys and values.

Versions are the four functions that the kernel takes as its template argument. Nobody reads what lies above the
diagonal.
"""

import torch

CASES = [
    {"batch": 1, "tokens": 128, "heads": 2, "size": 64},
    {"batch": 2, "tokens": 1024, "heads": 12, "size": 64},
]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True, "multiples": {"tokens": 128, "size": 32}}
VERSION = 1


def inputs(batch, tokens, heads, size):
    return torch.rand(batch, tokens, 3, heads, size, device="cuda") * 2 - 1


def reference(x):
    q, k, _ = x.permute(2, 0, 3, 1, 4).unbind(0)
    return torch.tril(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5)


def launch(module, x):
    batch, tokens, _, heads, size = x.shape
    function = {1: "matmul_tri_naive", 2: "matmul_tri_registers", 3: "matmul_tri3", 4: "matmul_tri4"}[VERSION]
    out = x.new_zeros(batch, heads, tokens, tokens)
    grid = (tokens // 128, tokens // 128, heads * batch)
    module[f"trimul_global<{function}>"][grid, (16, 16)](out, x, tokens, heads * size, heads)
    return torch.tril(out)
