"""llm.c's sum of two streams in float32: 8 sequences of 1,024 tokens, 768 channels."""

import torch

CASES = [
    {"count": 4096},
    {"count": 8 * 1024 * 768},
]
CONTRACT = {"contiguous": True, "aligned": 16, "multiples": {"count": 4}}
VERSION = 1


def inputs(count):
    return tuple(torch.randn(count, device="cuda") for _ in range(2))


def reference(a, b):
    return a + b


def launch(module, a, b):
    out = torch.empty_like(a)
    if VERSION == 1:
        module.residual_forward_kernel1[-(-a.numel() // 256), 256](out, a, b, a.numel())
    else:
        module.residual_forward_kernel2[-(-a.numel() // (256 * 4)), 256](out, a, b, a.numel())
    return out
