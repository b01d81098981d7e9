"""LeetCUDA's root mean square norm, with one or four elements a thread."""

import torch

CASES = [
    {"rows": 6, "columns": 256},
    {"rows": 8192, "columns": 1024},
]
CONTRACT = {"contiguous": True, "aligned": 16}
VERSION = 1


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda"), 1.5


def reference(x, scale):
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5) * scale


def launch(module, x, scale):
    y = torch.empty_like(x)
    rows, columns = x.shape
    if VERSION == 1:
        module[f"rms_norm_f32_kernel<{columns}>"][rows, columns](x, y, scale, rows, columns)
    else:
        module[f"rms_norm_f32x4_kernel<{columns // 4}>"][rows, columns // 4](x, y, scale, rows, columns)
    return y
