import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoid_scale(x_ptr, n, scaling_factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x_ptr + i, mask=mask)
    v = tl.sigmoid(v) * scaling_factor
    tl.store(x_ptr + i, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, scaling_factor):
        super().__init__()
        self.gemm = nn.Linear(input_size, hidden_size)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.gemm(x).contiguous()
        n = x.numel()
        sigmoid_scale[(triton.cdiv(n, 1024),)](x, n, self.scaling_factor, BLOCK=1024)
        return x
