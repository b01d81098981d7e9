"""Refining with a model on the GPU that also judges: `python -m tests.bench.model_refine`.

The tests' own tiny model has learned two answers for each of three examples, a wrong one and, told so, a right one. It
is served as `kernel-lsp model serve` would do it; then each example is refined in full, with the tuner first and the
model after it. What came of it, and how often the server was paused, resumed, put to sleep and woken, is printed.
`$TEST_VLLM_PYTHON` names a Python that has vLLM and torch.
Options: --budget SECONDS for each example (default 60), --record.
"""

import argparse
import asyncio
import json
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kernel_model_server import launch

from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.model.client import Message
from kernel_lsp.model.profile import find_profile
from kernel_lsp.model.servers import Server
from kernel_lsp.refine.dialogue.answer import read_answer
from kernel_lsp.refine.dialogue.conversation import Attempt, messages, tell
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, make_task
from kernel_lsp.refine.run import refine_target
from kernel_lsp.store.store import open_store
from tests.bench.record import record
from tests.served_model.fixture import VLLM_PYTHON, Learned, learned_model

EXAMPLES = Path(__file__).parents[2] / "examples"
PROFILE = find_profile("kevin-32b")
# What is learned by heart must be the same in every run, so these say neither times nor wrong values.
TEMPLATES = {
    "first.j2": "{{ architecture }}\nWrite ModelNew in CUDA.\n",
    "feedback.j2": "It was {{ kind }}. Write it again.\n",
}
THOUGHT = "One pass less."
ANSWER = '''```python
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
{kernel}
torch::Tensor run({parameters}) {{
    auto y = torch::empty_like(x);
    int rows = x.size(0);
    int cols = x.size(1);
    {name}<<<rows, 512>>>({arguments}, y.data_ptr<float>(), cols);
    return y;
}}
"""
op = load_inline(name="op", cpp_sources="torch::Tensor run({parameters});", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, {names}):
        return op.run({names})
```

Sums go through warp shuffles.'''
SUM = """__device__ float block_sum(float v) {
    __shared__ float part[17];
    for (int s = 16; s > 0; s >>= 1) v += __shfl_xor_sync(0xffffffff, v, s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 16; ++w) part[0] += part[w];
        part[16] = part[0];
    }
    __syncthreads();
    return part[16];
}
"""
RMSNORM = (
    SUM
    + """__global__ void rmsnorm(const float* x, const float* weight, float* y, int cols) {{
    const float* row = x + (size_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 512) sum += row[i] * row[i];
    float scale = rsqrtf(block_sum(sum){wrong} / cols + 1e-6f);
    for (int i = threadIdx.x; i < cols; i += 512) y[(size_t)blockIdx.x * cols + i] = row[i] * scale * weight[i];
}}
""".replace("{{", "{").replace("}}", "}")
)
SOFTMAX = """__global__ void softmax_rows(const float* x, float* y, int cols) {
    __shared__ float part[512];
    __shared__ float sums[512];
    const float* row = x + (size_t)blockIdx.x * cols;
    float peak = -INFINITY;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 512) {
        float v = row[i];
        float top = fmaxf(peak, v);
        sum = sum * expf(peak - top) + expf(v - top);
        peak = top;
    }
    part[threadIdx.x] = peak;
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 256; s > 0; s >>= 1) {
        if (threadIdx.x < s) {
            float a = part[threadIdx.x];
            float b = part[threadIdx.x + s];
            float top = fmaxf(a, b);
            float left = a == -INFINITY ? 0.0f : sums[threadIdx.x] * expf(a - top);
            float right = b == -INFINITY ? 0.0f : sums[threadIdx.x + s] * expf(b - top);
            part[threadIdx.x] = top;
            sums[threadIdx.x] = left + right;
        }
        __syncthreads();
    }
    float scale = 1.0f / sums[0]{wrong};
    for (int i = threadIdx.x; i < cols; i += 512) y[(size_t)blockIdx.x * cols + i] = expf(row[i] - part[0]) * scale;
}
"""
TRANSPOSE_NOTE = ""


def main() -> None:
    """Learn, serve, refine, stop."""


if __name__ == "__main__":
    main()
