"""Liger's rotary embedding of queries and keys."""

import torch

CASES = [
    {"batch": 1, "tokens": 9, "heads": 4, "keys": 2, "size": 48},
    {"batch": 2, "tokens": 2048, "heads": 32, "keys": 8, "size": 64},
]
CONTRACT = {"contiguous": True}


def inputs(batch, tokens, heads, keys, size):
    angles = torch.rand(1, tokens, size // 2, device="cuda").repeat(1, 1, 2) * 6.28
    queries = torch.randn(batch, heads, tokens, size, device="cuda")
    return queries, torch.randn(batch, keys, tokens, size, device="cuda"), torch.cos(angles), torch.sin(angles)


def reference(q, k, cos, sin):
    def turned(x):
        half = x.shape[-1] // 2
        return x * cos[:, None] + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin[:, None]

    cos = torch.cat([cos[..., : cos.shape[-1] // 2]] * 2, dim=-1)
    sin = torch.cat([sin[..., : sin.shape[-1] // 2]] * 2, dim=-1)
    return turned(q), turned(k)


def launch(module, q, k, cos, sin):
    return module.LigerRopeFunction.apply(q, k, cos, sin)
