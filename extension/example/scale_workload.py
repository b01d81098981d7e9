"""How scale.cu is called, and what is right: all that Kernel LSP needs to check the kernel, and to time it."""

import torch

CASES = [dict(n=1000), dict(n=1 << 24), dict(n=(1 << 22) + 3)]  # sizes you care about, odd ones among them


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):  # called with float64 tensors
    return 3.0 * x


def launch(module, x):  # module.kernel[grid, block](arguments)
    y = torch.empty_like(x)
    module.scale[(x.numel() + 255) // 256, 256](x, y, 3.0, x.numel())
    return y
