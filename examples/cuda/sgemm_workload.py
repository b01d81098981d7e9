"""Single-precision matrix product, the classic tiled kernel.

Limited by arithmetic in principle (2 M N K flops); as written, by loads from shared memory, two for every multiply-add
(see `sgemm.cu`).
"""

import torch

CASES = [
    dict(m=65, n=47, k=83),
    dict(m=2048, n=2048, k=2048),
    dict(m=1024, n=1024, k=1024),
    dict(m=1000, n=777, k=1513),
]
CONTRACT = dict(contiguous=True, aligned=16)
TOLERANCE = dict(atol=1e-3, rtol=1e-4)


def inputs(m, n, k):
    return torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")


def reference(a, b):
    return a @ b


def launch(module, a, b):
    TILE = 16  # as in sgemm.cu
    m, k = a.shape
    n = b.shape[1]
    c = a.new_empty(m, n)
    grid = ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE)
    module.sgemm[grid, (TILE, TILE)](a, b, c, m, n, k)
    return c
