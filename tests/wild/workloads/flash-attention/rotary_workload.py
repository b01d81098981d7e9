"""flash-attention's rotary embedding of part of each head."""

import torch

CASES = [
    {"batch": 1, "tokens": 10, "heads": 3, "size": 48, "turned": 32},
    {"batch": 4, "tokens": 2048, "heads": 16, "size": 128, "turned": 128},
]
CONTRACT = {"contiguous": True}


def inputs(batch, tokens, heads, size, turned):
    x = torch.randn(batch, tokens, heads, size, device="cuda", dtype=torch.float16)
    angles = torch.rand(tokens, turned // 2, device="cuda") * 6.28
    return x, torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)


def reference(x, cos, sin):
    half = cos.shape[1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)


def launch(module, x, cos, sin):
    return module.apply_rotary(x, cos, sin)
