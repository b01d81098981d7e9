"""flash-attention's losses and their gradient over logits."""

import torch

CASES = [
    {"rows": 6, "words": 1000},
    {"rows": 1024, "words": 32000},
]
CONTRACT = {"contiguous": True, "finite": True}


def inputs(rows, words):
    logits = torch.randn(rows, words, device="cuda")
    return logits, torch.randint(words, (rows,), device="cuda"), torch.rand(rows, device="cuda")


def reference(logits, labels, gradient):
    with torch.enable_grad():
        logits = logits.detach().clone().requires_grad_(True)
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    return losses.detach(), torch.autograd.grad(losses, logits, gradient.to(losses.dtype))[0]


def launch(module, logits, labels, gradient):
    with torch.enable_grad():
        logits = logits.detach().requires_grad_(True)
        losses, _ = module.cross_entropy_loss(logits, labels)
    return losses.detach(), torch.autograd.grad(losses, logits, gradient)[0]
