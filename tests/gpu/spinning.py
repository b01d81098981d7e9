"""A kernel whose time is set by one number and whose answer is not, with its workload."""

from pathlib import Path

ROUNDS = "constexpr int ROUNDS = 200;"
BODY = "y[i] = state == 0 ? 0.0f : 2.0f * x[i];"
KERNEL = f"""// Twice the input, after rounds of a generator that never reaches zero, which no compiler knows.

{ROUNDS}

extern "C" __global__ void scale(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {{
        return;
    }}
    unsigned long long state = i + 1;
#pragma unroll 1
    for (int round = 0; round < ROUNDS; ++round) {{
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }}
    {BODY}
}}
"""
LAUNCH = "module.scale[(x.numel() + 255) // 256, 256](x, y, x.numel())"
WORKLOAD = f"""import torch

CASES = [dict(n=1000), dict(n=1 << 20)]
CONTRACT = dict(contiguous=True, finite=True)


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    {LAUNCH}
    return y
"""


def write(folder: Path) -> Path:
    """Both files; the path of the kernel."""
    (folder / "scale_workload.py").write_text(WORKLOAD)
    (folder / "scale.cu").write_text(KERNEL)
    return folder / "scale.cu"


def rounds(number: int) -> tuple[str, str]:
    """The change that makes it take `number` rounds."""
    return (ROUNDS, f"constexpr int ROUNDS = {number};")
