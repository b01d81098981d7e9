"""llm.c's matrix product with a bias in float32: an eighth of GPT-2's first projection."""

import torch

CASES = [
    {"rows": 128, "channels": 64, "outputs": 128},
    {"rows": 1024, "channels": 768, "outputs": 3072},
]
CONTRACT = {"contiguous": True, "aligned": 16, "multiples": {"rows": 128, "channels": 32, "outputs": 128}}
VERSION = 1


def inputs(rows, channels, outputs):
    x = torch.rand(rows, channels, device="cuda") * 2 - 1
    weight = torch.rand(outputs, channels, device="cuda") * 2 - 1
    return x, weight, torch.rand(outputs, device="cuda") * 2 - 1


def reference(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias)


def launch(module, x, weight, bias):
    rows, channels = x.shape
    outputs = weight.shape[0]
    out = x.new_empty(rows, outputs)
    if VERSION == 1:
        grid = (-(-rows // 16), -(-outputs // 16))
        module.matmul_forward_kernel1[grid, (16, 16)](out, x, weight, bias, rows, channels, outputs)
    else:
        module.matmul_forward_kernel4[(rows // 128, outputs // 128), (16, 16)](out, x, weight, bias, channels, outputs)
    return out
