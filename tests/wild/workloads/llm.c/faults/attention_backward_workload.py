"""The backward pass of llm.c's causal softmax, kernels 7 and 8, as `launch_softmax_7` and `_8` launch them."""

import torch

CASES = [{"heads": 2, "length": 128, "hs": 64}]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True}
VERSION = 7


def inputs(heads, length, hs):
    scores = torch.randn(heads, length, length, device="cuda").masked_fill(
        torch.ones(length, length, device="cuda", dtype=torch.bool).triu(1), float("-inf")
    )
    return torch.randn(heads, length, length, device="cuda"), torch.softmax(scores, dim=-1), hs


def reference(grad, att, hs):
    grad, att = grad.tril(), att.tril()
    return (att * (grad - (att * grad).sum(dim=-1, keepdim=True))) / hs**0.5


def launch(module, grad, att, hs):
    out = torch.zeros_like(att)
    heads, length, _ = att.shape
    grid = (length if VERSION == 7 else length // 4, heads)
    kernel = module[f"softmax_autoregressive_backward_kernel{VERSION}<128>"]
    kernel[grid, 128](out, grad, att, heads, length, hs, 1 / hs**0.5)
    return out
