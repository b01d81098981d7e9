"""LeetCUDA's layer norm, with one or four elements a thread."""

import torch

CASES = [
    {"rows": 6, "columns": 256},
    {"rows": 8192, "columns": 1024},
]
CONTRACT = {"contiguous": True, "aligned": 16}
VERSION = 1


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda"), 1.5, 0.25


def reference(x, scale, bias):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], None, None, 1e-5) * scale + bias


def launch(module, x, scale, bias):
    y = torch.empty_like(x)
    rows, columns = x.shape
    if VERSION == 1:
        module[f"layer_norm_f32_kernel<{columns}>"][rows, columns](x, y, scale, bias, rows, columns)
    else:
        module[f"layer_norm_f32x4_kernel<{columns // 4}>"][rows, columns // 4](x, y, scale, bias, rows, columns)
    return y
