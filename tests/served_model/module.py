"""A module in KernelBench's form, small enough for the emulator, and what a model may say of it."""

from pathlib import Path

from tests.served_model.scale import model_new

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return 3 * x


size = 40


def get_inputs():
    return [torch.arange(size, dtype=torch.float32)]


def get_init_inputs():
    return []
"""
# The inputs are the same in every session, for prompts quote the first wrong element.
RIGHT = model_new("if (i < n) y[i] = x[i] * 3.0f;", "Blocks of 64 threads.")
WRONG = model_new("if (i < n) y[i] = 3.0f * x[i] + 1.0f;", "One fused multiply and add.")
BROKEN = model_new("if (i < n) y[i] = 3.0f * z[i];", "Reads go through z.")
CHEAT = RIGHT.replace("return op.run(x)", "torch.cuda.synchronize = print\n        return op.run(x)").replace(
    "import torch.nn as nn", "import torch\nimport torch.nn as nn"
)
TRITON = """```python
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 3.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
```

One program for 64 elements."""


def code_of(answer: str) -> str:
    """The code of an answer."""
    return answer.split("```python\n")[1].split("```")[0]


def write_module(folder: Path) -> Path:
    """The module's file in `folder`."""
    (folder / "scale.py").write_text(PROBLEM)
    return folder / "scale.py"


def write_answer(folder: Path, answer: str = RIGHT) -> Path:
    """A file with a `ModelNew`, beside the module that it is for."""
    write_module(folder)
    (folder / "scale_cuda.py").write_text(code_of(answer))
    return folder / "scale_cuda.py"
