"""llm.c's gradient of the loss over the logits, which adds to what is there."""

import torch

CASES = [
    {"rows": 10, "words": 257},
    {"rows": 512, "words": 50257},
]
CONTRACT = {"contiguous": True, "finite": True, "mutates": ("gradients",)}


def inputs(rows, words):
    probabilities = torch.softmax(torch.randn(rows, words, device="cuda"), dim=-1)
    targets = torch.randint(words, (rows,), device="cuda", dtype=torch.int32)
    return torch.randn(rows, words, device="cuda"), torch.randn(rows, device="cuda"), probabilities, targets


def reference(gradients, losses, probabilities, targets):
    hits = torch.zeros_like(probabilities).scatter_(1, targets.long()[:, None], 1.0)
    return gradients + (probabilities - hits) * losses[:, None]


def launch(module, gradients, losses, probabilities, targets):
    rows, words = probabilities.shape
    grid = -(-rows * words // 256)
    module.crossentropy_softmax_backward_kernel1[grid, 256](gradients, losses, probabilities, targets, 1, rows, words)
    return gradients
