import torch

CASES = [{"m": 208, "n": 416, "k": 304}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}


def inputs(m, n, k):
    return torch.randn(m, k, device="cuda", dtype=torch.float16), torch.randn(k, n, device="cuda", dtype=torch.float16)


def reference(a, b):
    return a @ b


def launch(module, a, b):
    c = torch.empty(a.shape[0], b.shape[1], device="cuda", dtype=torch.float16)
    module.blocked_matmul_pipelined(a, b, c, 64, 64, 64, 4)
    return c
