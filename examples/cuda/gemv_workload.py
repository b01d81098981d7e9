"""y = A x for a row-major matrix, tall ones and wide ones.

Limited by memory bandwidth: 4 bytes of A for each multiply-add, and no reuse of them (see `gemv.cu`).
"""

import torch

CASES = [
    dict(rows=13, cols=300),
    dict(rows=16384, cols=8192),
    dict(rows=256, cols=65537),
    dict(rows=100_003, cols=513),
]
CONTRACT = dict(contiguous=True, aligned=16)


def inputs(rows, cols):
    return torch.randn(rows, cols, device="cuda"), torch.randn(cols, device="cuda")


def reference(a, x):
    return a @ x


def launch(module, a, x):
    THREADS = 256  # as in gemv.cu
    rows, cols = a.shape
    y = torch.empty(rows, device=a.device)
    module.gemv[(rows,), (THREADS,)](a, x, y, cols)
    return y
