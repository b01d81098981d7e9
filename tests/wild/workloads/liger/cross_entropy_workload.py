"""Liger's mean loss over a vocabulary, without gradients."""

import torch

CASES = [
    {"rows": 6, "words": 1000},
    {"rows": 1024, "words": 32000},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(rows, words):
    return torch.randn(rows, words, device="cuda"), torch.randint(words, (rows,), device="cuda")


def reference(logits, targets):
    return torch.nn.functional.cross_entropy(logits, targets)


def launch(module, logits, targets):
    return module.LigerCrossEntropyFunction.apply(logits, targets, None)[0]
