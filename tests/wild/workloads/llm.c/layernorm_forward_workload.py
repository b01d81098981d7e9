"""llm.c's layer norm at the size of GPT-2: 8 sequences of 1,024 tokens, 768 channels. It returns mean and rstd too."""

import torch

CASES = [
    {"rows": 64, "channels": 256},
    {"rows": 8192, "channels": 768},
]
CONTRACT = {"contiguous": True, "aligned": 16, "multiples": {"rows": 8, "channels": 4}}
VERSION = 1


def inputs(rows, channels):
    x = torch.rand(rows, channels, device="cuda") * 2 - 1
    weight = torch.rand(channels, device="cuda") * 2 - 1
    bias = torch.rand(channels, device="cuda") * 2 - 1
    return x, weight, bias


def reference(x, weight, bias):
    mean = x.mean(dim=-1)
    rstd = torch.rsqrt(x.var(dim=-1, correction=0) + 1e-5)
    return (x - mean[:, None]) * rstd[:, None] * weight + bias, mean, rstd


def launch(module, x, weight, bias):
    out = torch.empty_like(x)
    rows, channels = x.shape
    mean, rstd = x.new_empty(rows), x.new_empty(rows)
    arguments = (out, mean, rstd, x, weight, bias, rows, channels)
    block = 256
    if VERSION == 1:
        module.layernorm_forward_kernel1[-(-rows // block), block](*arguments)
    elif VERSION == 2:
        module.mean_kernel[rows, block, 4 * block](mean, x, rows, channels, block)
        module.rstd_kernel[rows, block, 4 * block](rstd, x, mean, rows, channels, block)
        module.normalization_kernel[rows * channels // block, block](
            out, x, mean, rstd, weight, bias, 1, rows, channels
        )
    elif VERSION == 3:
        module.layernorm_forward_kernel3[rows * 32 // block, block](*arguments)
    elif VERSION == 4:
        module.layernorm_forward_kernel4[rows * 32 // block, block](*arguments)
    elif VERSION == 5:
        module.layernorm_forward_kernel5[rows, block](*arguments)
    else:
        warps = block // 32
        shared = (2 + warps) * channels * 4
        module.layernorm_forward_kernel6[-(-rows // warps), (32, warps), shared](*arguments)
    return out, mean, rstd
