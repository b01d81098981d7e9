"""Layer norm as in a transformer block: tokens by hidden size, float16."""

import torch

CASES = [
    dict(tokens=3, hidden=2999, mean=100.0),
    dict(tokens=8, hidden=768),
    dict(tokens=8192, hidden=4096),
    dict(tokens=2048, hidden=1024),
    dict(tokens=517, hidden=2500),
]

CONTRACT = dict(contiguous=True)


def inputs(tokens, hidden, mean=0.0):
    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.float16) + mean
    weight = torch.randn(hidden, device="cuda", dtype=torch.float16)
    bias = torch.randn(hidden, device="cuda", dtype=torch.float16)
    return x, weight, bias


def reference(x, weight, bias):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)


def launch(module, x, weight, bias):
    return module.layernorm(x, weight, bias)
