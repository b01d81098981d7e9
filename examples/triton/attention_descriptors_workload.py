"""Causal self-attention in float16 by tensor descriptors; sequence lengths on and off the block sizes."""

import torch

CASES = [
    dict(batch=2, heads=3, seq_len=135, dim=16),
    dict(batch=1, heads=2, seq_len=128, dim=64),
    dict(batch=2, heads=16, seq_len=4096, dim=64),
    dict(batch=4, heads=16, seq_len=1024, dim=64),
    dict(batch=1, heads=3, seq_len=333, dim=128),
]

# A masked-out value of NaN is multiplied by a zero weight, in the reference as in the kernel.
CONTRACT = dict(contiguous=True, finite=True, aligned=16)


def inputs(batch, heads, seq_len, dim):
    q, k, v = (torch.randn(batch, heads, seq_len, dim, device="cuda", dtype=torch.float16) for _ in range(3))
    return q, k, v


def reference(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def launch(module, q, k, v):
    return module.attention(q, k, v)
