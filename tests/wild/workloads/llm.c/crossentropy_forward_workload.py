"""llm.c's loss of one word among 50,257 by its probability."""

import torch

CASES = [
    {"rows": 100, "words": 257},
    {"rows": 1024, "words": 50257},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(rows, words):
    probabilities = torch.rand(rows, words, device="cuda") * 0.99 + 0.01
    return probabilities, torch.randint(words, (rows,), device="cuda", dtype=torch.int32)


def reference(probabilities, targets):
    return -torch.log(probabilities.gather(1, targets.long()[:, None])[:, 0])


def launch(module, probabilities, targets):
    rows, words = probabilities.shape
    losses = probabilities.new_empty(rows)
    module.crossentropy_forward_kernel1[-(-rows // 128), 128](losses, probabilities, targets, 1, rows, words)
    return losses
