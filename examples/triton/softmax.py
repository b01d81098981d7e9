"""Row softmax in float32: one program holds a whole row in registers.

Each element is read once and written once, 8 bytes for about five floating-point operations, so on a current GPU the
kernel is limited by memory bandwidth: the least time is `2 * rows * cols * 4` bytes over the bandwidth of the device.
What keeps a launch away from that is too few bytes in flight, either from too few rows or from rows so long that the
registers they need leave few programs on a multiprocessor.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * y_stride + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


def softmax(x):
    """Softmax over the last dimension of a matrix."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    rows, cols = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, x.stride(0), y.stride(0), cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)
    return y


CASES = [
    dict(rows=3, cols=250, padding=6),
    dict(rows=16, cols=256),
    dict(rows=2048, cols=8192),
    dict(rows=1024, cols=1024),
    dict(rows=1823, cols=781),
]


def inputs(rows, cols, padding=0):
    return (torch.randn(rows, cols + padding, device="cuda")[:, :cols],)


def reference(x):
    return torch.softmax(x, dim=-1)


def launch(module, x):
    return module.softmax(x)
