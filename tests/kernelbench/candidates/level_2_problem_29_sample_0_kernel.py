import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mish(v):
    e = tl.exp(-tl.abs(v))
    softplus = tl.maximum(v, 0.0) + tl.where(e < 1e-4, e, tl.log(1.0 + e))
    t = tl.exp(-2.0 * softplus)
    return v * (1.0 - t) / (1.0 + t)


@triton.jit
def mish_mish(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x_ptr + i, mask=mask)
    v = mish(v)
    v = mish(v)
    tl.store(x_ptr + i, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = self.linear(x).contiguous()
        n = x.numel()
        mish_mish[(triton.cdiv(n, 1024),)](x, n, BLOCK=1024)
        return x
