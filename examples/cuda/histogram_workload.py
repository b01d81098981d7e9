"""Counts of 256 values, spread evenly (`high=256`) and crowded into few bins (`high=12`).

Limited by memory bandwidth (4 bytes a value) or by atomics on shared memory, depending on how many values meet in one
bin (see `histogram.cu`).
"""

import torch

CASES = [
    dict(n=991, high=259, low=-2),  # some are in no bin
    dict(n=1003, high=256),
    dict(n=1 << 25, high=256),
    dict(n=1 << 22, high=256),
    dict(n=5_000_001, high=12),
]
CONTRACT = dict(contiguous=True, aligned=16)
BINS = 256


def inputs(n, high, low=0):
    return (torch.randint(low, high, (n,), device="cuda", dtype=torch.int32),)


def reference(values):
    counted = values[(values >= 0) & (values < BINS)]
    return torch.bincount(counted, minlength=BINS).to(torch.int32)


def launch(module, values):
    counts = torch.zeros(BINS, device=values.device, dtype=torch.int32)
    n = values.numel()
    block = 256
    grid = min((n + block - 1) // block, 1024)
    module.histogram[(grid,), (block,)](values, counts, n)
    return counts
