"""Refining with a model on the GPU that also judges: `python -m tests.bench.model_refine`.

The tests' own tiny model has learned two answers for each of three examples: a wrong one and, when it is told so, a
right one. It is served as `kernel-lsp model serve` would do it; then each example is refined in full, the tuner first
and the model after it. What came of each answer, and how often the server was paused, resumed, put to sleep and woken,
is printed. `$TEST_VLLM_PYTHON` names a Python that has vLLM and torch.
Options: --budget SECONDS for each example (default 60), --record.
"""

import argparse
import asyncio
import json
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_model_server import launch

from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.model.client import Message
from kernel_lsp.model.profile import find_profile
from kernel_lsp.refine.dialogue.answer import read_answer
from kernel_lsp.refine.dialogue.conversation import PastTurn, messages
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, make_task
from kernel_lsp.refine.model_session import gpu_name
from kernel_lsp.refine.outcome import Refinement
from kernel_lsp.refine.run import refine_target
from kernel_lsp.store.store import Store, open_store
from tests.bench.record import record
from tests.served_model.fixture import VLLM_PYTHON, Learned, learned_model

EXAMPLES = Path(__file__).parents[2] / "examples"
PROFILE = find_profile("kevin-32b")
# What is learned by heart must be asked in the same words in every run, so these quote neither times nor values.
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
    int rows = x.size(0);
    int cols = x.size(1);
    {host}
    return y;
}}
"""
op = load_inline(name="op", cpp_sources="torch::Tensor run({parameters});", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, {names}):
        return op.run({names})
```

{summary}'''
RMSNORM = """__global__ void rmsnorm(const float* x, const float* weight, float* y, int cols) {
    __shared__ float part[17];
    const float* row = x + (size_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 512) sum += row[i] * row[i];
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int w = 0; w < 16; ++w) all += part[w];
        part[16] = rsqrtf(all / cols + 1e-6f);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < cols; i += 512) y[(size_t)blockIdx.x * cols + i] = row[i] * part[16] * weight[i];
}
"""
SOFTMAX = """__global__ void softmax_rows(const float* x, float* y, int cols) {
    __shared__ float peaks[512];
    __shared__ float sums[512];
    const float* row = x + (size_t)blockIdx.x * cols;
    float peak = -3.0e38f;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 512) {
        float top = fmaxf(peak, row[i]);
        sum = sum * expf(peak - top) + expf(row[i] - top);
        peak = top;
    }
    peaks[threadIdx.x] = peak;
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 256; s > 0; s >>= 1) {
        if (threadIdx.x < s) {
            float top = fmaxf(peaks[threadIdx.x], peaks[threadIdx.x + s]);
            sums[threadIdx.x] *= expf(peaks[threadIdx.x] - top);
            sums[threadIdx.x] += sums[threadIdx.x + s] * expf(peaks[threadIdx.x + s] - top);
            peaks[threadIdx.x] = top;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < cols; i += 512) y[(size_t)blockIdx.x * cols + i] = expf(row[i] - peaks[0]) / sums[0];
}
"""
TRANSPOSE = """__global__ void transpose_padded(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) {
        if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * cols + x];
    }
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) {
        if (x < rows && y + j < cols) out[(size_t)(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
    }
}
"""


@dataclass(frozen=True, slots=True)
class Example:
    """One example and what the model says of it. `mistake` is a piece of the right kernel and what it first says."""

    path: str
    kernel: str
    names: tuple[str, ...]
    host: str
    mistake: tuple[str, str]
    summary: str

    def answers(self) -> tuple[str, str]:
        """The wrong answer, then the right one."""
        right = ANSWER.format(
            kernel=self.kernel,
            parameters=", ".join(f"torch::Tensor {name}" for name in self.names),
            names=", ".join(self.names),
            host=self.host,
            summary=self.summary,
        )
        return right.replace(*self.mistake), right


_LIKE = "auto y = torch::empty_like(x);\n    "
_ROWS = "<<<rows, 512>>>(x.data_ptr<float>(), "
LEARNED = (
    Example(
        "cuda/rmsnorm.cu",
        RMSNORM,
        ("x", "weight"),
        f"{_LIKE}rmsnorm{_ROWS}weight.data_ptr<float>(), y.data_ptr<float>(), cols);",
        ("rsqrtf(all / cols + 1e-6f)", "rsqrtf(all + 1e-6f)"),
        "Sums go through warp shuffles.",
    ),
    Example(
        "cuda/softmax.cu",
        SOFTMAX,
        ("x",),
        f"{_LIKE}softmax_rows{_ROWS}y.data_ptr<float>(), cols);",
        (" / sums[0]", " / (sums[0] + 1.0f)"),
        "Maximum and sum in one pass.",
    ),
    Example(
        "cuda/transpose.cu",
        TRANSPOSE,
        ("x",),
        "auto y = torch::empty({cols, rows}, x.options());\n    dim3 grid((cols + 31) / 32, (rows + 31) / 32);\n    "
        "dim3 block(32, 8);\n    "
        "transpose_padded<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, cols);",
        ("tile[threadIdx.x][threadIdx.y + j]", "tile[threadIdx.y + j][threadIdx.x]"),
        "A padded tile has no bank conflicts.",
    ),
)


async def lesson(example: Example, templates: Path, gpu: str) -> list[Learned]:
    """What the model is asked in its two turns on an example, and what it is to say."""
    prompts = Prompts(PROFILE.talk.format, templates)
    task = make_task(make_target(EXAMPLES / example.path), PROFILE, prompts)
    wrong, right = example.answers()
    told = prompts.render("feedback", kind="incorrect", message="", facts=[]).strip()

    async def count(_: Any) -> int:
        return 0

    async def learned(attempts: list[PastTurn], answer: str) -> Learned:
        said: list[Message] = await messages(task, PROFILE.talk, Briefing(gpu), attempts, count)
        return Learned(tuple((m["role"], m["content"]) for m in said), THOUGHT, answer)

    return [await learned([], wrong), await learned([PastTurn(read_answer(wrong), told)], right)]


async def refined(example: Example, settings: Settings, store: Store) -> dict[str, Any]:
    """Figures of one refinement."""
    begun = time.perf_counter()
    verdicts: list[Verdict] = []
    found = await refine_target(
        make_target(EXAMPLES / example.path), settings, store, asyncio.Event(), on_verdict=verdicts.append
    )
    servers = [s.how for v in verdicts if v.evidence.device for s in v.evidence.device.model_servers]
    return {
        "example": example.path,
        "seconds": time.perf_counter() - begun,
        "reason": found.reason,
        "best": found.best.evidence.candidate_label if found.best else None,
        "speedup": found.best.speedup if found.best else None,
        "interval": found.best.interval if found.best else None,
        "candidates": len(found.tried),
        "by_the_model": by_the_model(found),
        "servers_while_timed": dict(Counter(servers)),
        "notes": found.notes,
    }


def by_the_model(found: Refinement) -> list[dict[str, Any]]:
    """What came of each answer; a full judgement follows a race."""
    return [
        {
            "label": tried.candidate.label,
            "verdict": tried.feedback.verdict.value,
            "ratio": tried.feedback.ratio,
            "message": tried.feedback.message[:160],
        }
        for tried in found.tried
        if tried.candidate.origin.startswith("model:")
    ]


def commands(log: str) -> dict[str, int]:
    """How often the server was told what, by its own log."""
    told = re.findall(r'"POST /(pause|resume|sleep|wake_up|v1/chat/completions)', log)
    return dict(Counter(told))


def main() -> None:
    """Learn, serve, refine, stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    gpu = next(iter(find_gpus()), None)
    with tempfile.TemporaryDirectory() as scratch:
        templates = Path(scratch, "templates")
        templates.mkdir()
        for name, text in TEMPLATES.items():
            (templates / name).write_text(text)
        begun = time.perf_counter()
        learned = [one for e in LEARNED for one in asyncio.run(lesson(e, templates, gpu_name(gpu)))]
        folder = learned_model(learned)
        figures: dict[str, Any] = {"learning_s": time.perf_counter() - begun}
        given = {
            "refine.strategy": "tuner-then-model",
            "refine.trajectories": 1,
            "refine.turns": 2,
            "refine.budget": asked.budget,
            "refine.untimed": True,
            "model.templates": templates,
            "model.python": VLLM_PYTHON,
            "paths.data": Path(scratch, "data"),
        }
        settings, _ = load_settings(overrides=given)
        begun = time.perf_counter()
        plan = launch.plan(str(folder), settings, profile=PROFILE.id)
        figures |= {"vllm": plan.vllm.version, "choice": plan.why}
        kept = launch.start(plan, attached=True)
        try:
            launch.wait_until_ready(kept)
            figures["ready_s"] = time.perf_counter() - begun
            print(json.dumps(figures), flush=True)
            rows: list[dict[str, Any]] = []
            with open_store(settings.paths.data) as store:
                for example in LEARNED:
                    rows.append(asyncio.run(refined(example, settings, store)))
                    print(json.dumps(rows[-1], indent=2), flush=True)
                turns = [turn for s in store.list_sessions() for turn in store.list_turns(s) if turn.prompt]
            by_heart = {f"<think>\n{THOUGHT}\n</think>\n{answer}" for e in LEARNED for answer in e.answers()}
            figures |= {
                "examples": rows,
                "turns": len(turns),
                "answers_as_learned": sum(turn.answer in by_heart for turn in turns),
                "commands": commands((kept / "log").read_text()),
            }
        finally:
            print((kept / "log").read_text()[-1500:], flush=True)
            launch.stop(kept)
    print(json.dumps(figures, indent=2))
    if asked.record:
        record("model_refine", figures, device=gpu.name if gpu else None, driver=gpu.driver if gpu else None)


if __name__ == "__main__":
    main()
