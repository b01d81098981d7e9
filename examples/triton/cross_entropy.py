"""Cross entropy of bfloat16 logits, one loss a row: one program walks a row of the vocabulary in blocks.

The log of the sum of exponentials is taken online: the running sum is rescaled whenever a block raises the running
maximum, so that the logits, 2 bytes each, are read only once and the outputs are negligible. About four operations and
one exponential an element put the limit at memory bandwidth on a current GPU, unless a program waits for its two
reductions a block before it asks for the next one.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(logits_ptr, targets_ptr, losses_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride

    # Finite, not -inf: a first block of masked-out (-inf) logits must give exp(-inf), not exp(-inf + inf).
    highest = -3.0e38
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        new_highest = tl.maximum(highest, tl.max(x, axis=0))
        total = total * tl.exp(highest - new_highest) + tl.sum(tl.exp(x - new_highest), axis=0)
        highest = new_highest

    target = tl.load(targets_ptr + row)
    picked = tl.load(logits_ptr + target).to(tl.float32)
    tl.store(losses_ptr + row, tl.log(total) + highest - picked)


def cross_entropy(logits, targets):
    """The float32 loss of each row of `logits` for its class in `targets`."""
    if logits.stride(-1) != 1:
        logits = logits.contiguous()
    rows, cols = logits.shape
    losses = torch.empty(rows, device=logits.device, dtype=torch.float32)
    cross_entropy_kernel[(rows,)](logits, targets.contiguous(), losses, logits.stride(0), cols, BLOCK=2048, num_warps=4)
    return losses
