"""Forward and backward pass together: the output, and the gradients by the input and by the weights."""

import torch

CASES = [
    dict(rows=5, cols=250),
    dict(rows=300, cols=130),  # several rows a strip, and a last strip that is shorter
    dict(rows=4096, cols=4096),
    dict(rows=512, cols=2048),
    dict(rows=128, cols=8191),
]


def inputs(rows, cols):
    x, dy = torch.randn(rows, cols, device="cuda"), torch.randn(rows, cols, device="cuda")
    return x, torch.randn(cols, device="cuda"), dy


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def both_ways(function, x, weight, dy):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = function(x, weight)
    return y, *torch.autograd.grad(y, (x, weight), dy)


def reference(x, weight, dy):
    return both_ways(norm, x, weight, dy)


def launch(module, x, weight, dy):
    return both_ways(module.RMSNorm.apply, x, weight, dy)
