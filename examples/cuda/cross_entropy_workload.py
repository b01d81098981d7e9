"""Cross-entropy of next-token logits, without reduction; what names no class, as padding (-100) does, costs nothing.

Limited by memory bandwidth: the logits are read once, 4 bytes an element, and hardly anything is written (see
`cross_entropy.cu`).
"""

import torch

CASES = [
    dict(rows=9, vocab=41, mean=-200.0),  # far below zero: only a maximum that begins at -inf gets it right
    dict(rows=7, vocab=300),
    dict(rows=1024, vocab=50257),
    dict(rows=2048, vocab=4096),
    dict(rows=4097, vocab=10007),
]
CONTRACT = dict(contiguous=True, aligned=16)


def inputs(rows, vocab, mean=0.0):
    logits = torch.randn(rows, vocab, device="cuda") + mean
    target = torch.randint(0, vocab, (rows,), device="cuda")
    target[::5] = -100
    target[1:4] = torch.tensor([0, vocab - 1, vocab])  # the first, the last, and one that is none
    return logits, target


def reference(logits, target):
    counted = (target >= 0) & (target < logits.shape[1])
    index = torch.where(counted, target, 0)
    loss = -torch.log_softmax(logits, dim=-1).gather(1, index[:, None]).squeeze(1)
    return torch.where(counted, loss, 0.0)


def launch(module, logits, target):
    THREADS = 256  # as in cross_entropy.cu
    rows, vocab = logits.shape
    loss = logits.new_empty(rows)
    module.cross_entropy[(rows,), (THREADS,)](logits, target, loss, vocab)
    return loss
