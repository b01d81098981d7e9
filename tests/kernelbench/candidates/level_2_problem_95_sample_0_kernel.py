import torch
import torch.nn as nn
import triton
import triton.language as tl

from triton.language.extra import libdevice


@triton.jit
def epilogue(x_ptr, add_ptr, n, features, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x_ptr + i, mask=mask) + tl.load(add_ptr + i % features, mask=mask)
    v = libdevice.tanh(tl.sigmoid(v) * v)
    v = 0.5 * v * (1.0 + libdevice.erf(v * 0.7071067811865476))
    v = tl.where(v < -1.0, -1.0, tl.where(v > 1.0, 1.0, v))
    tl.store(x_ptr + i, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, add_value_shape):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.add_value = nn.Parameter(torch.randn(add_value_shape))

    def forward(self, x):
        x = self.matmul(x)
        n = x.numel()
        epilogue[(triton.cdiv(n, 1024),)](x, self.add_value, n, x.shape[1], BLOCK=1024)
        return x
