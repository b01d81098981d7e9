"""Layer norm forward, float16 in and out with float32 arithmetic: one program walks a row in blocks, three times.

The first walk gives the mean, the second the variance about that mean, which does not cancel the way a difference of
sums does, and the third normalises. DRAM has to move each element in once and out once, 4 bytes; the second and third
walks read rows that are a few kilobytes long and so should find them in a cache. The limit is memory bandwidth, with
the two dependent reductions of a row as latency in front of its stores.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n_cols
    y_ptr += row * n_cols

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        centred = tl.where(cols < n_cols, x - mean, 0.0)
        squares += centred * centred
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask).to(tl.float32)
        bias = tl.load(bias_ptr + cols, mask=mask).to(tl.float32)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_ptr + cols, y.to(tl.float16), mask=mask)


def layernorm(x, weight, bias, eps=1e-5):
    """Layer norm over the last dimension of a contiguous float16 tensor."""
    n_cols = x.shape[-1]
    y = torch.empty_like(x)
    layernorm_kernel[(x.numel() // n_cols,)](x, weight, bias, y, n_cols, eps, BLOCK=1024, num_warps=4)
    return y
