"""`x + a * y` through a ring of bulk copies, for Hopper and later.

Limited by DRAM: two floats read and one written for each multiply-add (see `triad.cu`).
"""

import torch

CASES = [
    dict(n=9 * 1024 + 7),
    dict(n=1 << 24),
    dict(n=10_000_001),
]
CONTRACT = dict(contiguous=True, aligned=16)
TOLERANCE = dict(atol=1e-5, rtol=1e-5)


def inputs(n):
    return torch.randn(n, device="cuda"), torch.randn(n, device="cuda"), 2.5


def reference(x, y, a):
    return x + a * y


def launch(module, x, y, a):
    TILE = 1024  # as in triad.cu
    z = torch.empty_like(x)
    n = x.numel()
    grid = min((n + TILE - 1) // TILE, 2 * torch.cuda.get_device_properties(0).multi_processor_count)
    module.triad[grid, 160](x, y, z, a, n)
    return z
