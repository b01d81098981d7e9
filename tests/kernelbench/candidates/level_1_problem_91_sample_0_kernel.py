import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def reverse_cumsum(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n
    y_ptr += row * n
    carry = 0.0
    for start in range(0, n, BLOCK):
        i = n - 1 - start - tl.arange(0, BLOCK)
        mask = i >= 0
        v = tl.load(x_ptr + i, mask=mask, other=0.0)
        tl.store(y_ptr + i, carry + tl.cumsum(v, axis=0), mask=mask)
        carry += tl.sum(v, axis=0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        y = torch.empty_like(x)
        reverse_cumsum[(x.shape[0],)](x, y, x.shape[1], BLOCK=512)
        return y
