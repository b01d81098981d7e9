"""Gluon's tutorial of persistent blocks: a half-precision product whose loads run ahead across tiles."""

import torch

CASES = [{"m": 208, "n": 416, "k": 304}, {"m": 2000, "n": 1000, "k": 2000}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}
TOLERANCE = {"atol": 1e-2, "rtol": 1e-2}


def inputs(m, n, k):
    kind = {"device": "cuda", "dtype": torch.float16}
    return torch.randn(m, k, **kind), torch.randn(k, n, **kind)


def reference(a, b):
    return a @ b


def launch(module, a, b):
    c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    module.persistent_matmul_pipelined(a, b, c, 64, 64, 64, 3, 4, module.PersistentTileScheduler)
    return c
