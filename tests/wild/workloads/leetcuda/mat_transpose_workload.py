"""LeetCUDA's transposes of a square matrix: by rows, by columns, by four, diagonally, by blocks of two dimensions."""

import torch

CASES = [
    {"size": 64},
    {"size": 2048},
]
CONTRACT = {"contiguous": True, "aligned": 16}
VERSION = 1


def inputs(size):
    return torch.randn(size, size, device="cuda")


def reference(x):
    return x.T.contiguous()


def launch(module, x):
    y = torch.empty_like(x)
    size, count = x.shape[0], x.numel()
    name, grid, block = {
        1: ("col2row", count // 256, 256),
        2: ("row2col", count // 256, 256),
        3: ("x4_col2row", count // 1024, 256),
        4: ("diagonal2d", (size // 16, size // 16), (16, 16)),
        5: ("col2row2d", (size // 16, size // 16), (16, 16)),
        6: ("row2col2d", (size // 16, size // 16), (16, 16)),
    }[VERSION]
    name = f"mat_transpose_f32{name}_kernel" if name.startswith("x4") else f"mat_transpose_f32_{name}_kernel"
    module[name][grid, block](x, y, size, size)
    return y
