"""The backward pass of llm.c's layer norm in bf16, kernels 9 and 10; the latter is the one that trains GPT-2."""

import torch

CASES = [{"rows": 64, "channels": 256}]
CONTRACT = {"contiguous": True, "aligned": 16}
NONDETERMINISTIC = True
VERSION = 9
BLOCKS = 4


def inputs(rows, channels):
    def bf16(*shape):
        return torch.randn(*shape, device="cuda").to(torch.bfloat16)

    return bf16(rows, channels), bf16(rows, channels), bf16(channels)


def _statistics(x):
    x = x.float()
    return x.mean(dim=-1), torch.rsqrt(x.var(dim=-1, correction=0) + 1e-5)


def reference(grad, x, weight):
    mean, rstd = (s.to(grad.dtype)[:, None] for s in _statistics(x))
    normed, weighted = (x - mean) * rstd, weight * grad
    dx = (weighted - weighted.mean(-1, keepdim=True) - normed * (weighted * normed).mean(-1, keepdim=True)) * rstd
    return dx, (grad * normed).sum(0), grad.sum(0)


def launch(module, grad, x, weight):
    rows, channels = x.shape
    dx, dweight, dbias = torch.zeros_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
    mean, rstd = (s.to(x.dtype) for s in _statistics(x))
    scratch = torch.zeros(32 + 2 * channels * BLOCKS, device=x.device)
    block = 128
    shared = (2 * channels + 2 * block + 1) * 4
    kernel = module.layernorm_backward_kernel9
    if VERSION == 10:
        rounded = -(-channels // 256) * 256
        shared = (2 * rounded + 2 * (block - 32) * 4) * 4
        kernel = module.layernorm_backward_kernel10
    kernel[BLOCKS, block, shared](dx, dweight, dbias, scratch, grad, x, weight, mean, rstd, 1, rows, channels)
    return dx, dweight, dbias
