"""Rotary embedding of half-precision queries, in place; a torch extension's kernel, launched without its host code.

Limited by memory bandwidth: 4 bytes of compulsory traffic an element (see `rotary.cu`).
"""

import torch

CASES = [
    dict(tokens=5, heads=3, head_dim=64),
    dict(tokens=16384, heads=32, head_dim=128),
    dict(tokens=2048, heads=16, head_dim=64),
    dict(tokens=1003, heads=7, head_dim=80),
]
CONTRACT = dict(contiguous=True, aligned=16, mutates=("q",))
TOLERANCE = dict(atol=2e-3, rtol=2e-3)


def inputs(tokens, heads, head_dim):
    q = torch.randn(tokens, heads, head_dim, device="cuda", dtype=torch.float16)
    frequency = 10000.0 ** (-torch.arange(0, head_dim, 2, device="cuda") / head_dim)
    angle = torch.arange(tokens, device="cuda")[:, None] * frequency
    return q, angle.cos(), angle.sin()


def reference(q, cos, sin):
    a, b = q.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(q.dtype)


def launch(module, q, cos, sin):
    THREADS = 256  # as in rotary.cu
    heads, head_dim = q.shape[1:]
    pairs = q.numel() // 2
    module.rotary_kernel[((pairs + THREADS - 1) // THREADS,), (THREADS,)](q, cos, sin, pairs, heads, head_dim // 2)
    return q
