"""The loss of a training step and its gradient by the logits, whose memory it takes."""

import torch

CASES = [
    dict(tokens=3, vocab=2500, factor=1.0),
    dict(tokens=8, vocab=5000, factor=0.5),
    dict(tokens=2048, vocab=32000, factor=1.0),
    dict(tokens=256, vocab=32000, factor=2.0),
    dict(tokens=333, vocab=50257, factor=1.0),
]
CONTRACT = dict(contiguous=True, mutates=("logits",))


def inputs(tokens, vocab, factor):
    logits = torch.randn(tokens, vocab, device="cuda", dtype=torch.bfloat16)
    targets = torch.randint(vocab, (tokens,), device="cuda")
    targets[1::4] = -100
    return logits, targets, factor


def both_ways(function, logits, targets, factor):
    logits = logits.detach().requires_grad_()
    loss = function(logits, targets)
    return loss, *torch.autograd.grad(loss, logits, torch.full_like(loss, factor))


def reference(logits, targets, factor):
    return both_ways(torch.nn.functional.cross_entropy, logits, targets, factor)


def launch(module, logits, targets, factor):
    return both_ways(module.CrossEntropy.apply, logits, targets, factor)
