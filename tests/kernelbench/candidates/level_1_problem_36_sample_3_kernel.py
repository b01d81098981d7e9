import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, n_channels, inner, eps, BLOCK: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < inner
    base = batch * n_channels * inner + cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for c in range(n_channels):
        v = tl.load(x_ptr + base + c * inner, mask=mask, other=0.0)
        squares += v * v
    rms = tl.sqrt(squares / n_channels + eps)
    for c in range(n_channels):
        v = tl.load(x_ptr + base + c * inner, mask=mask, other=0.0)
        tl.store(y_ptr + base + c * inner, v / rms, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        inner = x[0, 0].numel()
        BLOCK = 256
        grid = (triton.cdiv(inner, BLOCK), x.shape[0])
        rms_norm_kernel[grid](x, y, x.shape[1], inner, self.eps, BLOCK=BLOCK)
        return y
