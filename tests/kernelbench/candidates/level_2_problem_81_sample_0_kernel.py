import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swish_clamp_tanh(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x_ptr + i, mask=mask)
    v = v * tl.sigmoid(v) / 2.0
    v = tl.where(v < -1.0, -1.0, tl.where(v > 1.0, 1.0, v))
    e = tl.exp(2.0 * v)
    v = (e - 1.0) / (e + 1.0)
    tl.store(x_ptr + i, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, x):
        x = self.gemm(x).contiguous()
        n = x.numel()
        swish_clamp_tanh[(triton.cdiv(n, 1024),)](x, n, BLOCK=1024)
        return x
