"""Triton's tutorial of persistent products, tensor descriptors by the host: half-precision `a @ b.T`."""

import torch

CASES = [{"m": 208, "n": 416, "k": 304}, {"m": 2048, "n": 2048, "k": 2048}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}
TOLERANCE = {"atol": 1e-2, "rtol": 1e-2}


def inputs(m, n, k):
    kind = {"device": "cuda", "dtype": torch.float16}
    return torch.randn(m, k, **kind), torch.randn(n, k, **kind)


def reference(a, b):
    return a @ b.T


def launch(module, a, b):
    return module.matmul_tma_persistent(a, b, warp_specialize=False)
