"""Cross entropy of bfloat16 logits with its gradient, which takes the logits' place in memory.

The logits of a training step are the largest tensor there is, and their gradient has their size. So the forward pass,
which has each row at hand, writes the gradient over it: a first walk finds the maximum and the sum of exponentials
online, a second turns logits into `(softmax - one_hot) / rows`. The backward pass scales that by what comes from
above, and does nothing where that is 1, as it is at the end of a model. Rows whose target is IGNORED count for nothing.
Two reads and one write of 2 bytes an element put the limit at memory bandwidth, less where a row stays in cache.
"""

import torch
import triton
import triton.language as tl

IGNORED = -100


@triton.jit
def cross_entropy_kernel(
    logits_ptr, targets_ptr, losses_ptr, counted_ptr, stride, n_cols, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride
    target = tl.load(targets_ptr + row)
    if target == IGNORED:
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            tl.store(logits_ptr + cols, 0.0, mask=cols < n_cols)
        tl.store(losses_ptr + row, 0.0)
        return

    highest = -3.0e38  # finite: exp(-inf + inf) would be NaN
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        new_highest = tl.maximum(highest, tl.max(x, axis=0))
        total = total * tl.exp(highest - new_highest) + tl.sum(tl.exp(x - new_highest), axis=0)
        highest = new_highest
    picked = tl.load(logits_ptr + target).to(tl.float32)
    tl.debug_barrier()  # every thread has read the target's logit before one overwrites it

    share = 1.0 / tl.load(counted_ptr).to(tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + cols, mask=cols < n_cols).to(tl.float32)
        gradient = tl.exp(x - highest) / total - tl.where(cols == target, 1.0, 0.0)
        tl.store(logits_ptr + cols, gradient * share, mask=cols < n_cols)
    tl.store(losses_ptr + row, (tl.log(total) + highest - picked) * share)


@triton.jit
def cross_entropy_scale_kernel(gradient_ptr, factor_ptr, stride, n_cols, BLOCK: tl.constexpr):
    factor = tl.load(factor_ptr)
    if factor == 1.0:
        return
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = gradient_ptr + tl.program_id(0).to(tl.int64) * stride + cols
    gradient = tl.load(at, mask=cols < n_cols).to(tl.float32)
    tl.store(at, gradient * factor, mask=cols < n_cols)


class CrossEntropy(torch.autograd.Function):
    """The mean loss of rows of `logits`, which are overwritten, for their classes in `targets`."""

    @staticmethod
    def forward(ctx, logits, targets):
        rows, cols = logits.shape
        losses = torch.empty(rows, device=logits.device, dtype=torch.float32)
        targets = targets.contiguous()
        counted = (targets != IGNORED).sum()
        cross_entropy_kernel[(rows,)](
            logits, targets, losses, counted, logits.stride(0), cols, IGNORED=IGNORED, BLOCK=2048, num_warps=4
        )
        ctx.save_for_backward(logits.detach())
        return losses.sum()

    @staticmethod
    def backward(ctx, above):
        (gradient,) = ctx.saved_tensors
        rows, cols = gradient.shape
        cross_entropy_scale_kernel[(rows, triton.cdiv(cols, 4096))](
            gradient, above, gradient.stride(0), cols, BLOCK=4096, num_warps=4
        )
        return gradient, None
