"""Small CUDA kernels whose speed depends on settings in their text, and answers that choose others, good and bad."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

THREADS = (32, 256, 1024, 2048)
"""Of a block, as answers choose them; no GPU takes the last one. They are few, for each new text is judged in full."""
ITEMS = (1, 4)
ELEMENTS = 1 << 25
"""Of the case that is timed."""
CHEATING, MISTAKEN = 0.1, 0.2
"""Shares of answers that a policy is taught: those that call the reference, and wrong ones on element-wise kernels."""

_EACH = """// {name}, element by element.

// Elements of a thread, a block apart from each other.
constexpr int ITEMS = 1;

__global__ void apply(const float* x, float* out, int n) {{
    int first = blockIdx.x * blockDim.x * ITEMS + threadIdx.x;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {{
        int i = first + k * blockDim.x;
        if (i < n) {{
            float a = x[i];
            out[i] = {body};
        }}
    }}
}}
"""
_EACH_WORKLOAD = """import torch

CASES = [dict(n=1003), dict(n={elements})]
CONTRACT = dict(contiguous=True)


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return {reference}


def launch(module, x):
    out = torch.empty_like(x)
    threads, items = 32, 1
    blocks = (x.numel() + threads * items - 1) // (threads * items)
    module.apply[(blocks,), (threads,)](x, out, x.numel())
    return out
"""
_ROW = """// {name}: a block for each row.

__global__ void reduce(const float* x, float* out, int cols) {{
    __shared__ float part[1024];
    const float* row = x + (size_t)blockIdx.x * cols;
    float s = {start};
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {{
        float a = row[i];
        s = {step};
    }}
    part[threadIdx.x] = s;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {{
        if (threadIdx.x < half) {{
            float p = part[threadIdx.x], q = part[threadIdx.x + half];
            part[threadIdx.x] = {join};
        }}
        __syncthreads();
    }}
    if (threadIdx.x == 0) {{
        out[blockIdx.x] = part[0];
    }}
}}
"""
_ROW_WORKLOAD = """import torch

CASES = [dict(rows=5, cols=129), dict(rows={rows}, cols={cols})]
CONTRACT = dict(contiguous=True)


def inputs(rows, cols):
    return (torch.randn(rows, cols, device="cuda"),)


def reference(x):
    return {reference}


def launch(module, x):
    out = torch.empty(x.shape[0], device="cuda")
    threads = 32
    module.reduce[(x.shape[0],), (threads,)](x, out, x.shape[1])
    return out
"""


@dataclass(frozen=True, slots=True)
class SmallKernel:
    """A kernel of the family, which begins with blocks of 32 threads.

    Attributes:
        name: of its file.
        kind: `each` computes elements, `row` reduces rows.
        body: of an element `a` in C; of a row the value that is taken in, or the step if it has a comma: step, join.
        reference: in torch, of `x`.
        cols: of a row.
    """

    name: str
    kind: Literal["each", "row"]
    body: str
    reference: str
    cols: int = 0

    def write(self, folder: Path) -> Path:
        """Write kernel and workload, and return the kernel's file."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.kind == "each":
            kernel = _EACH.format(name=self.name, body=self.body)
            workload = _EACH_WORKLOAD.format(elements=ELEMENTS, reference=self.reference)
        else:
            largest = self.body.startswith("max ")
            taken = self.body.removeprefix("max ")
            start, step, join = (
                ("-INFINITY", f"fmaxf(s, {taken})", "fmaxf(p, q)") if largest else ("0.0f", f"s + {taken}", "p + q")
            )
            kernel = _ROW.format(name=self.name, start=start, step=step, join=join)
            rows = ELEMENTS // self.cols
            workload = _ROW_WORKLOAD.format(rows=rows, cols=self.cols, reference=self.reference)
        (folder / f"{self.name}_workload.py").write_text(workload)
        path = folder / f"{self.name}.cu"
        path.write_text(kernel)
        return path


def _each(name: str, body: str, reference: str) -> SmallKernel:
    return SmallKernel(name, "each", body, reference)


def _row(name: str, body: str, reference: str, cols: int) -> SmallKernel:
    return SmallKernel(name, "row", body, reference, cols)


TAUGHT = (
    _each("scale", "3.0f * a", "3 * x"),
    _each("relu", "fmaxf(a, 0.0f)", "torch.relu(x)"),
    _each("shift", "a + 1.5f", "x + 1.5"),
    _each("cube", "a * a * a", "x * x * x"),
    _row("total", "a", "x.sum(1)", 4096),
    _row("largest", "max a", "x.amax(1)", 1024),
    _row("strides", "2.0f * a", "2 * x.sum(1)", 16384),
)
"""Kernels on which answers are taught."""
TRAINED = (
    _each("silu", "a / (1.0f + expf(-a))", "x * torch.sigmoid(x)"),
    _each("square", "a * a", "x * x"),
    _each("leaky", "a > 0.0f ? a : 0.1f * a", "torch.nn.functional.leaky_relu(x, 0.1)"),
    _row("squares", "a * a", "(x * x).sum(1)", 4096),
    _row("reach", "max fabsf(a)", "x.abs().amax(1)", 1024),
    _row("positive", "fmaxf(a, 0.0f)", "torch.relu(x).sum(1)", 16384),
)
"""Kernels that are learned on."""
HELD = (
    _each("negative", "-a", "-x"),
    _each("absolute", "fabsf(a)", "x.abs()"),
    _each("clipped", "fminf(a, 1.0f)", "x.clamp(max=1.0)"),
    _row("absolutes", "fabsf(a)", "x.abs().sum(1)", 4096),
    _row("deepest", "max -a", "(-x).amax(1)", 1024),
    _row("cubes", "a * a * a", "(x * x * x).sum(1)", 16384),
)
"""Kernels that are only asked about at the end."""


def drawn_answer(kernel: SmallKernel, chance: random.Random) -> str:
    """Return an answer whose settings know nothing of the GPU; some are wrong, do not launch, or cheat.

    An element-wise kernel is wrong where it is launched for more elements of a thread than it computes.
    """
    if chance.random() < CHEATING:
        return _answer([("    return out", "    return reference(x)")], "The library is faster.")
    threads = chance.choice(THREADS)
    if kernel.kind == "row":
        return _answer([("    threads = 32", f"    threads = {threads}")], f"Blocks of {threads} threads.")
    launched = chance.choice(ITEMS)
    computed = chance.choice(ITEMS) if chance.random() < MISTAKEN else launched
    edits = [
        ("constexpr int ITEMS = 1;", f"constexpr int ITEMS = {computed};"),
        ("    threads, items = 32, 1", f"    threads, items = {threads}, {launched}"),
    ]
    return _answer(edits, f"Blocks of {threads} threads, {launched} elements each.")


def _answer(edits: list[tuple[str, str]], said: str) -> str:
    blocks = "".join(f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n" for old, new in edits)
    return f"```\n{blocks}```\n{said}"
