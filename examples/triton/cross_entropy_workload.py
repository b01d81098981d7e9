"""Token losses over the vocabularies of Llama 2 (32,000) and GPT-2 (50,257, off every block size)."""

import torch

CASES = [
    dict(tokens=3, vocab=2500, padding=12, mean=-200.0),  # far below zero, and rows that lie apart
    dict(tokens=8, vocab=5000),
    dict(tokens=2048, vocab=32000),
    dict(tokens=256, vocab=32000),
    dict(tokens=333, vocab=50257),
]


def inputs(tokens, vocab, padding=0, mean=0.0):
    logits = (torch.randn(tokens, vocab + padding, device="cuda", dtype=torch.bfloat16) + mean)[:, :vocab]
    targets = torch.randint(vocab, (tokens,), device="cuda")
    return logits, targets


def reference(logits, targets):
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def launch(module, logits, targets):
    return module.cross_entropy(logits, targets)
