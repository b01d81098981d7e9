import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_rows(d_ptr, b_ptr, c_ptr, M, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < M
    d = tl.load(d_ptr + row)
    b = tl.load(b_ptr + row * M + cols, mask=mask)
    tl.store(c_ptr + row * M + cols, d * b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        N, M = B.shape
        C = torch.empty_like(B)
        BLOCK = 512
        scale_rows[(N, triton.cdiv(M, BLOCK))](A, B, C, M, BLOCK=BLOCK)
        return C
