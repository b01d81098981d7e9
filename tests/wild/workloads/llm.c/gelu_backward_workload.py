"""llm.c's gradient of the GELU in float32: 8 sequences of 1,024 tokens, 768 channels."""

import math

import torch

CASES = [
    {"count": 4096},
    {"count": 8 * 1024 * 768},
]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True, "multiples": {"count": 4}}
VERSION = 1


def inputs(count):
    return torch.randn(count, device="cuda"), torch.randn(count, device="cuda")


def reference(x, gradient):
    scale = math.sqrt(2 / math.pi)
    tangent = torch.tanh(scale * (x + 0.044715 * x**3))
    local = 0.5 * (1 + tangent) + 0.5 * x * (1 - tangent**2) * scale * (1 + 3 * 0.044715 * x**2)
    return local * gradient


def launch(module, x, gradient):
    y = torch.empty_like(x)
    if VERSION == 1:
        module.gelu_backward1[-(-x.numel() // 256), 256](y, x, gradient, x.numel())
    else:
        module.gelu_backward2[-(-x.numel() // (256 * 4)), 256](y, x, gradient, x.numel())
    return y
