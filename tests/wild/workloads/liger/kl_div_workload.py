"""Liger's divergence of log-probabilities from probabilities."""

import torch

CASES = [
    {"rows": 6, "words": 500},
    {"rows": 1024, "words": 32000},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(rows, words):
    predicted = torch.log_softmax(torch.randn(rows, words, device="cuda"), dim=-1)
    return predicted, torch.softmax(torch.randn(rows, words, device="cuda"), dim=-1)


def reference(predicted, target):
    return torch.nn.functional.kl_div(predicted, target.clamp_min(0), reduction="batchmean")


def launch(module, predicted, target):
    return module.LigerKLDivLossFunction.apply(predicted, target)
