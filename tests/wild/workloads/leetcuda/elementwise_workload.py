"""LeetCUDA's sum in float16, with one, two and eight elements a thread."""

import torch

CASES = [
    {"count": 4096},
    {"count": 16777216},
]
CONTRACT = {"contiguous": True, "aligned": 16}
VERSION = 1


def inputs(count):
    return tuple(torch.randn(count, device="cuda", dtype=torch.float16) for _ in range(2))


def reference(a, b):
    return a + b


def launch(module, a, b):
    c = torch.empty_like(a)
    name, each = {1: ("f16", 1), 2: ("f16x2", 2), 3: ("f16x8", 8), 4: ("f16x8_pack", 8)}[VERSION]
    module[f"elementwise_add_{name}_kernel"][a.numel() // (256 * each), 256](a, b, c, a.numel())
    return c
