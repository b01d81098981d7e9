"""Liger's group norm of images."""

import torch

CASES = [
    {"batch": 2, "channels": 6, "groups": 3, "size": 40},
    {"batch": 16, "channels": 64, "groups": 16, "size": 4096},
]
CONTRACT = {"contiguous": True}


def inputs(batch, channels, groups, size):
    x = torch.randn(batch, channels, size, device="cuda")
    return x, torch.randn(channels, device="cuda"), torch.randn(channels, device="cuda"), groups


def reference(x, weight, bias, groups):
    return torch.nn.functional.group_norm(x, groups, weight, bias, 1e-6)


def launch(module, x, weight, bias, groups):
    return module.LigerGroupNormFunction.apply(x, weight, bias, x.shape[1], groups, 1e-6)
