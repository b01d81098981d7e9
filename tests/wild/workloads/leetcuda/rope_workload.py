"""LeetCUDA's rotary embedding of neighbours, whose angles each thread makes itself."""

import torch

CASES = [
    {"tokens": 40, "size": 128},
    {"tokens": 4096, "size": 512},
]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True}
TOLERANCE = {"atol": 1e-2, "rtol": 1e-2}  # angles of thousands are made in float32
VERSION = 1


def inputs(tokens, size):
    return torch.randn(tokens, size, device="cuda")


def reference(x):
    pairs = torch.arange(x.shape[1] // 2, device=x.device, dtype=torch.float64)
    speeds = 10000.0 ** (-2 * pairs / x.shape[1])
    angles = (torch.arange(x.shape[0], device=x.device)[:, None] * speeds).to(x.dtype)
    a, b = x[:, ::2], x[:, 1::2]
    turned = (a * torch.cos(angles) - b * torch.sin(angles), a * torch.sin(angles) + b * torch.cos(angles))
    return torch.stack(turned, dim=-1).flatten(1)


def launch(module, x):
    y = torch.empty_like(x)
    tokens, pairs = x.shape[0], x.shape[1] // 2
    if VERSION == 1:
        block = min(pairs, 256)
        module.rope_f32_kernel[tokens * pairs // block, block](x, y, tokens, pairs)
    else:
        module.rope_f32_v2_kernel[tokens, pairs](x, y, tokens, pairs)
    return y
