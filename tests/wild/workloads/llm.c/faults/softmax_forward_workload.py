"""llm.c's `softmax_forward_kernel4` as `softmax_forward4` launches it, and kernels 7 and 8 at few columns."""

import torch

CASES = [{"rows": 4, "columns": 256}]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True}
VERSION = 4


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda")


def reference(x):
    return torch.softmax(x, dim=-1)


def launch(module, x):
    y = torch.empty_like(x)
    rows, columns = x.shape
    block = 128
    if VERSION == 4:
        module.softmax_forward_kernel4[rows, block, 4 * block // 32](y, x, rows, columns)
    elif VERSION == 7:
        module.softmax_forward_kernel7[rows, block, 8 * block // 32](y, x, rows, columns)
    else:
        module.softmax_forward_online_kernel8[-(-rows * 32 // block), block](y, x, rows, columns)
    return y
