import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kl_rows(p_ptr, t_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        p = tl.load(p_ptr + row * n + i, mask=i < n, other=1.0)
        t = tl.load(t_ptr + row * n + i, mask=i < n, other=0.0)
        acc += tl.where(t == 0, 0.0, t * (tl.log(t) - tl.log(p)))
    tl.store(out_ptr + row, tl.sum(acc, axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, predictions, targets):
        rows, n = predictions.shape
        losses = torch.empty(rows, device=predictions.device)
        kl_rows[(rows,)](predictions, targets, losses, n, BLOCK=1024)
        return losses.sum() / rows
