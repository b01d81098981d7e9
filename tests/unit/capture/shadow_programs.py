"""A program with its kernels, and versions of them, for tests of shadow runs."""

KERNELS = """import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    total = tl.load(x + places, mask=inside) + 3 * tl.load(y + places, mask=inside)
    tl.store(out + places, total, mask=inside)


@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, factor * tl.load(x + places, mask=places < n), mask=places < n)


def add(x, y, block=32):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


def add_into(x, y):
    add_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x, x.numel(), BLOCK=32)


def noisy(x):
    return add(x, torch.rand_like(x)), add_again(x, torch.rand_like(x))


def add_again(x, y):
    noise = torch.rand_like(x)
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 32),)](y, noise, out, x.numel(), BLOCK=32)
    return out


def scale_forward(x, factor):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 32),)](x, out, factor, x.numel(), BLOCK=32)
    return out, 32


def scale_backward(dy, factor):
    out = torch.empty_like(dy)
    scale_kernel[(triton.cdiv(dy.numel(), 32),)](dy, out, factor, dy.numel(), BLOCK=32)
    return out


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return scale_forward(x.contiguous(), factor)[0]

    @staticmethod
    def backward(ctx, dy):
        return scale_backward(dy.contiguous(), ctx.factor), None


def scaled(x, factor):
    return Scale.apply(x, factor)
"""

PROGRAM = """import gc
import os
import sys
import weakref
import torch
from ops import add, add_into, noisy, scaled

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
weight = torch.nn.Parameter(torch.randn(41, device=device))
optimizer = torch.optim.SGD([weight], lr=0.01)


def train_step(x):
    total = scaled(x * weight, 2.0) + add(x, x) + sum(noisy(x))
    view = total.detach()[4:36]
    add_into(view, x[:32])
    loss = (total * total).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


add(torch.randn(64, device=device), torch.randn(64, device=device))
for number in range(12):
    x = torch.randn(41, device=device)
    if number == 7:
        x[5] = 1000.0
    loss = train_step(x)
kept = torch.randn(8, device=device)
gone = weakref.ref(kept)
add(kept, kept)
del kept
print(gone() is None, loss.item().hex(), [value.hex() for value in weight.tolist()], torch.rand(1).item().hex())
"""

_LAST = "tl.where((places == n - 1) & (n % 32 == 9), total + 1, total)"
RAGGED = ("mask=inside)\n    tl.store", "mask=inside)\n    total = LAST\n    tl.store".replace("LAST", _LAST))
OUTLIER = (
    "    tl.store(out + places, total, mask=inside)",
    "    tl.store(out + places, tl.where(total > 3000, 3000.0, total), mask=inside)",
)
IN_PLACE = ("(x, y, x, x.numel(), BLOCK=32)", "(x, y, x, x.numel() - 1, BLOCK=32)")
BACKWARD = ("(dy, out, factor, dy.numel(), BLOCK=32)", "(dy, out, factor * 1.01, dy.numel(), BLOCK=32)")


def changed(*changes: tuple[str, str]) -> str:
    """The kernels with some text replaced."""
    text = KERNELS
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text
