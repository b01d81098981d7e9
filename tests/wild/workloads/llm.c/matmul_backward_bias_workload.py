"""llm.c's gradient of a bias in float32: sums over 8 sequences of 1,024 tokens, added to what is there."""

import torch

CASES = [
    {"rows": 96, "outputs": 64},
    {"rows": 8192, "outputs": 768},
]
CONTRACT = {"contiguous": True, "finite": True, "mutates": ("bias",), "multiples": {"outputs": 32}}
VERSION = 1


def inputs(rows, outputs):
    gradient = torch.randn(rows, outputs, device="cuda")
    return torch.randn(outputs, device="cuda"), gradient


def reference(bias, gradient):
    return bias + gradient.sum(dim=0)


def launch(module, bias, gradient):
    rows, outputs = gradient.shape
    arguments = (bias, gradient, 1, rows, outputs)
    if VERSION == 1:
        module.matmul_backward_bias_kernel1[outputs, 512, 4 * 512](*arguments)
    elif VERSION == 2:
        module.matmul_backward_bias_kernel2[outputs * 32 // 256, 256](*arguments)
    elif VERSION == 3:
        module.matmul_backward_bias_kernel3[outputs, 256](*arguments)
    else:
        module.matmul_backward_bias_kernel4[outputs // 32, 256, 4 * 256](*arguments)
    return bias
