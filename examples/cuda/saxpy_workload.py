"""z = alpha x + y over long vectors, already at the speed of memory: the honest answer here is "nothing worth it".

Limited by memory bandwidth: 12 bytes of compulsory traffic an element, no reuse (see `saxpy.cu`).
"""

import torch

CASES = [
    dict(n=1003),
    dict(n=1 << 24),
    dict(n=(1 << 23) + 3),
    dict(n=20_000_001),
]
CONTRACT = dict(contiguous=True, aligned=16)
ALPHA = 1.5


def inputs(n):
    return torch.randn(n, device="cuda"), torch.randn(n, device="cuda")


def reference(x, y):
    return ALPHA * x + y


def launch(module, x, y):
    THREADS, VECTORS = 256, 4  # as in saxpy.cu
    z = torch.empty_like(x)
    vectors = (x.nbytes + 15) // 16
    per_block = THREADS * VECTORS
    module.saxpy[((vectors + per_block - 1) // per_block,), (THREADS,)](x, y, z, ALPHA, x.numel())
    return z
