"""Liger's total variation distance of probabilities."""

import torch

CASES = [
    {"rows": 6, "words": 500},
    {"rows": 1024, "words": 32000},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(rows, words):
    p = torch.softmax(torch.randn(rows, words, device="cuda"), dim=-1)
    return p, torch.softmax(torch.randn(rows, words, device="cuda"), dim=-1)


def reference(p, q):
    return (p - q).abs().sum() / 2 / p.shape[0]


def launch(module, p, q):
    return module.LigerTVDLossFunction.apply(p, q)
