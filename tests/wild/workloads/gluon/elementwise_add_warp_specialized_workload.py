"""Gluon's tutorial of warp specialisation: sums of two matrices, by warps that load, that add and that store."""

import torch

CASES = [{"m": 100, "n": 400}, {"m": 4000, "n": 1200}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}


def inputs(m, n):
    return torch.randn(m, n, device="cuda"), torch.randn(m, n, device="cuda")


def reference(a, b):
    return a + b


def launch(module, a, b):
    c = torch.empty_like(a)
    module.elementwise_add_warp_specialized(a, b, c)
    return c
