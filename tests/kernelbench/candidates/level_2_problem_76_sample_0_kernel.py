import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_relu(x_ptr, bias_ptr, out_ptr, n, features, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x_ptr + i, mask=mask) + tl.load(bias_ptr + i % features, mask=mask)
    tl.store(out_ptr + i, tl.where(v < 0, 0.0, v), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_shape):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.gemm(x)
        out = torch.empty_like(x)
        n = x.numel()
        bias_relu[(triton.cdiv(n, 512),)](x, self.bias, out, n, x.shape[1], BLOCK=512)
        return out
