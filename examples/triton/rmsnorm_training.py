"""RMS norm in float32 with its gradients, as an `autograd.Function`: forward one program a row, backward by strips.

With `scale = 1 / sqrt(mean(x * x) + eps)` the forward pass keeps one number a row for the backward pass, which reads
`x` and the gradient once and writes once. The gradient of the weights is a sum over rows: each program adds up a strip
of rows in registers and writes one partial sum, and there are as many strips as multiprocessors, so that what is left
to add is small. Memory bandwidth is the limit on a current GPU, in both directions.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_forward_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + start + cols, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + cols, mask=mask)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(y_ptr + start + cols, x * scale * weight, mask=mask)
    tl.store(scale_ptr + row, scale)


@triton.jit
def rmsnorm_backward_kernel(
    dy_ptr, x_ptr, weight_ptr, scale_ptr, dx_ptr, partial_ptr, n_rows, n_cols, rows_per_strip, BLOCK: tl.constexpr
):
    strip = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(strip * rows_per_strip, tl.minimum((strip + 1) * rows_per_strip, n_rows)):
        at = row * n_cols + cols
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
        scale = tl.load(scale_ptr + row)
        normed = x * scale
        weighted = dy * weight
        share = tl.sum(weighted * normed, axis=0) / n_cols
        tl.store(dx_ptr + at, scale * (weighted - normed * share), mask=mask)
        dweight += dy * normed
    tl.store(partial_ptr + strip * n_cols + cols, dweight, mask=mask)


class RMSNorm(torch.autograd.Function):
    """RMS norm over the last dimension of a matrix, differentiable by the matrix and by the weights."""

    @staticmethod
    def forward(ctx, x, weight, eps=1e-6):
        x, weight = x.contiguous(), weight.contiguous()
        rows, cols = x.shape
        y, scale = torch.empty_like(x), torch.empty(rows, device=x.device)
        block = triton.next_power_of_2(cols)
        rmsnorm_forward_kernel[(rows,)](x, weight, y, scale, cols, eps, BLOCK=block, num_warps=4)
        ctx.save_for_backward(x, weight, scale)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, scale = ctx.saved_tensors
        rows, cols = x.shape
        per_strip = triton.cdiv(rows, torch.cuda.get_device_properties(x.device).multi_processor_count)
        strips = triton.cdiv(rows, per_strip)
        dx, partial = torch.empty_like(x), torch.empty(strips, cols, device=x.device)
        block = triton.next_power_of_2(cols)
        rmsnorm_backward_kernel[(strips,)](
            dy.contiguous(), x, weight, scale, dx, partial, rows, cols, per_strip, BLOCK=block, num_warps=8
        )
        return dx, partial.sum(0), None
