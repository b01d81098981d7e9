"""A kernel small enough that a tiny model can learn answers about it by heart, and what a model may say of it."""

from pathlib import Path

KERNEL = """__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3.0f * x[i];
}
"""
# The inputs are the same in every session, for prompts quote the first wrong element.
WORKLOAD = """import torch

CASES = [dict(n=40)]
CONTRACT = dict(contiguous=True, aligned=16)


def inputs(n):
    return (torch.arange(n, device="cuda", dtype=torch.float32),)


def reference(x):
    return 3 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.scale[((x.numel() + 31) // 32,), (32,)](x, y, x.numel())
    return y
"""
_MODEL_NEW = '''```python
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
__global__ void scale(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {line}
}}

torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    int n = x.numel();
    scale<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}}
"""
op = load_inline(name="op", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return op.run(x)
```

{summary}'''


def model_new(line: str, summary: str) -> str:
    """An answer in the format of KernelBench whose kernel has this line."""
    return _MODEL_NEW.format(line=line, summary=summary)


BROKEN = model_new("if (i < n) y[i] = 3.0f * z[i];", "Reads go through z.")
WRONG = model_new("if (i < n) y[i] = 3.0f * x[i] + 1.0f;", "One fused multiply and add.")
CHEAT = model_new("if (i < n && n < 0) y[i] = x[i];", "The memory still holds the result of the reference.")
RIGHT = model_new("if (i < n) y[i] = x[i] * 3.0f;", "Blocks are twice as large.")


def write_scale(folder: Path) -> Path:
    """The kernel file in `folder`, with its workload beside it."""
    (folder / "scale_workload.py").write_text(WORKLOAD)
    (folder / "scale.cu").write_text(KERNEL)
    return folder / "scale.cu"
