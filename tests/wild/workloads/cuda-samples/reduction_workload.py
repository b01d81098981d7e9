"""NVIDIA's ways to sum a vector by blocks, called again until one number is left.

Version 7 is left out: its last shuffles read lanes that take no part, and what these give is undefined.
"""

import torch

CASES = [
    {"count": 16384},
    {"count": 16777216},
]
CONTRACT = {"contiguous": True, "aligned": 16}
VERSION = 0


def inputs(count):
    return torch.rand(count, device="cuda")


def reference(x):
    return x.sum()[None]


def launch(module, x):
    while x.numel() > 1:
        blocks = -(-x.numel() // (256 if VERSION < 3 else 512))
        blocks = min(blocks, 64) if VERSION >= 6 else blocks
        out = x.new_empty(blocks)
        parameters = "" if VERSION < 4 else ", 256" if VERSION < 6 else ", 256, false"
        module[f"reduce{VERSION}<float{parameters}>"][blocks, 256, 1024](x, out, x.numel())
        x = out
    return x
