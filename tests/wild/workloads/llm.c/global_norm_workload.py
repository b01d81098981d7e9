"""llm.c's sum of the squares of all gradients; versions 1 to 3 add what blocks or warps have by atomics."""

import torch

CASES = [
    {"count": 100003},
    {"count": 124_000_000 // 8},
]
CONTRACT = {"contiguous": True, "finite": True}
NONDETERMINISTIC = True
VERSION = 4


def inputs(count):
    return torch.randn(count, device="cuda")


def reference(x):
    return torch.sum(x * x)[None]


def launch(module, x):
    block, multiprocessors = 512, torch.cuda.get_device_properties(0).multi_processor_count
    grid = 2048 * multiprocessors // block
    out = torch.zeros(1024, device=x.device)
    module[f"norm_kernel{VERSION}<float>"][grid, block](out, x, x.numel())
    if VERSION == 4:
        module.global_norm_aggregate_kernel[1, 1024](out, grid)
    return out[:1].clone()
