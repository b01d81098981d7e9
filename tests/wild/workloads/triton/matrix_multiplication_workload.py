"""Triton's tutorial 03: a matrix product in float16, tuned when it is first called."""

import torch

CASES = [
    {"m": 70, "n": 90, "k": 100},
    {"m": 512, "n": 512, "k": 512},
    {"m": 2048, "n": 2048, "k": 1024},
]
CONTRACT = {"contiguous": True, "aligned": 16}


def inputs(m, n, k):
    a = torch.rand(m, k, device="cuda", dtype=torch.float16) - 0.5
    b = torch.rand(k, n, device="cuda", dtype=torch.float16) - 0.5
    return a, b


def reference(a, b):
    return a @ b


def launch(module, a, b):
    return module.matmul(a, b)
