"""Matrix products in float16: one that fills the GPU, a flat one, and one whose sizes are off every tile."""

import torch

CASES = [
    dict(m=131, n=67, k=43),
    dict(m=1031, n=137, k=19),  # more tile rows than GROUP_M
    dict(m=4096, n=4096, k=4096),
    dict(m=512, n=4096, k=1024),
    dict(m=1000, n=777, k=513),
]


def inputs(m, n, k):
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16) * k**-0.5  # a product of unit variance, far from overflow
    return a, b


def reference(a, b):
    return a @ b


def launch(module, a, b):
    return module.matmul(a, b)
