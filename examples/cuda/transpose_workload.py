"""Out-of-place transpose of a float32 matrix.

Limited by memory bandwidth: 8 bytes of compulsory traffic an element and no arithmetic (see `transpose.cu`).
"""

import torch

CASES = [
    dict(rows=33, cols=65),
    dict(rows=4096, cols=8192),
    dict(rows=2048, cols=2048),
    dict(rows=4099, cols=3001),
]
CONTRACT = dict(contiguous=True, aligned=16)


def inputs(rows, cols):
    return (torch.randn(rows, cols, device="cuda"),)


def reference(x):
    return x.t().contiguous()


def launch(module, x):
    rows, cols = x.shape
    y = x.new_empty(cols, rows)
    grid = ((cols + 31) // 32, (rows + 31) // 32)
    module["transpose<float>"][grid, (32, 8)](x, y, rows, cols)
    return y
