"""Triton's tutorial 04: dropout by random numbers that the kernel makes itself, Philox 4x32 with ten rounds.

The reference makes the same numbers, as Salmon et al. say (Parallel random numbers: as easy as 1, 2, 3, 2011) and by
Triton's way from 32 bits to [0, 1).
"""

import torch

CASES = [
    {"size": 1500},
    {"size": 1 << 20},
    {"size": 1 << 23},
]
CONTRACT = {"contiguous": True, "finite": True}

_MASK = 0xFFFFFFFF


def inputs(size):
    return torch.randn(size, device="cuda"), 0.5, 123


def _product(a, b):
    """High and low 32 bits of products of 32-bit numbers, which int64 does not hold at once."""
    low = (a & 0xFFFF) * b
    high = (a >> 16) * b + (low >> 16)
    return high >> 16, ((high << 16) | (low & 0xFFFF)) & _MASK


def _uniform(seed, count, device):
    c0 = torch.arange(count, device=device, dtype=torch.int64)
    c1 = c2 = c3 = torch.zeros_like(c0)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(10):
        high_a, low_a = _product(c0, 0xD2511F53)
        high_b, low_b = _product(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    signed = torch.where(c0 >= 1 << 31, c0 - (1 << 32), c0)
    return torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10


def reference(x, p, seed):
    return torch.where(_uniform(seed, x.numel(), x.device) > p, x / (1 - p), 0.0)


def launch(module, x, p, seed):
    return module.seeded_dropout(x, p, seed)
