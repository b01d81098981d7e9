"""unsloth's rotary embedding of queries: batch, heads, tokens, size of a head."""

import torch

CASES = [
    {"batch": 1, "heads": 3, "tokens": 10, "size": 32},
    {"batch": 2, "heads": 32, "tokens": 1024, "size": 128},
    {"batch": 1, "heads": 8, "tokens": 4096, "size": 64},
]
CONTRACT = {"contiguous": True}


def inputs(batch, heads, tokens, size):
    queries = torch.randn(batch, heads, tokens, size, device="cuda")
    angles = torch.rand(tokens, size // 2, device="cuda").repeat(1, 2) * 6.28
    return queries, torch.cos(angles), torch.sin(angles)


def reference(queries, cos, sin):
    half = queries.shape[-1] // 2
    a, b = queries[..., :half], queries[..., half:]
    cos, sin = cos[:, :half], sin[:, :half]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def launch(module, queries, cos, sin):
    return module._rope_embedding_forward_impl(queries, cos, sin)[0]
