"""Rotary embedding with grouped queries, at Llama's head counts and at counts that are no power of two."""

import torch

CASES = [
    dict(batch=2, seq_len=8, q_heads=4, k_heads=2, dim=64),
    dict(batch=4, seq_len=4096, q_heads=32, k_heads=8, dim=128),
    dict(batch=1, seq_len=2048, q_heads=32, k_heads=8, dim=128),
    dict(batch=3, seq_len=77, q_heads=12, k_heads=3, dim=64),
]

CONTRACT = dict(contiguous=True, mutates=("q", "k"))


def inputs(batch, seq_len, q_heads, k_heads, dim):
    q = torch.randn(batch, seq_len, q_heads, dim, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(batch, seq_len, k_heads, dim, device="cuda", dtype=torch.bfloat16)
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim)
    angles = torch.arange(seq_len, device="cuda")[:, None] * frequencies
    return q, k, angles.cos(), angles.sin()


def reference(q, k, cos, sin):
    cos, sin = cos[:, None, :], sin[:, None, :]

    def rotated(x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    return rotated(q), rotated(k)


def launch(module, q, k, cos, sin):
    return module.rotary(q, k, cos, sin)
