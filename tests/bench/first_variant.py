"""From a program that nobody prepared to its first verified variant: `python -m tests.bench.first_variant`.

Three programs: a training step of Liger's kernels (of the folder that `tests/wild/fetch.py` fills), a plain CUDA
program that nvcc compiles, and a program with a torch extension. Of each is timed: the program alone, once it has run
before; the same under `kernel-lsp capture`, with nothing of ours cached; and searches on the captured functions, the
largest share first, until a variant is verified to be faster. The figure is the seconds on top of the program: what
capture adds, and the searches until then. Options: --only NAME..., --public DIR (default .public), --budget SECONDS of
a program's searches (default 60), --emulate to rehearse without a GPU (nothing is timed or claimed), --record.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.capture.device_level import ChosenLaunch
from kernel_lsp.capture.run import Captured, capture_program
from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.refine.progress import SearchProgress
from kernel_lsp.refine.run import refine_target
from kernel_lsp.store.store import open_store
from kernel_lsp.workload.capture import FOLDER, Capture
from tests.bench.record import record

GOAL_SECONDS = 60.0
_LIGER = """import sys
import torch
from cross_entropy import LigerCrossEntropyFunction
from jsd import LigerJSDFunction
from rms_norm import LigerRMSNormFunction
from swiglu import LigerSiLUMulFunction

tokens, hidden, inner, vocabulary, steps = map(int, sys.argv[1:])
torch.manual_seed(0)
kind = dict(device="cuda", dtype=torch.float32)
names = dict(gate=(inner, hidden), up=(inner, hidden), down=(hidden, inner), head=(vocabulary, hidden))
weights = {name: torch.nn.Parameter(0.02 * torch.randn(shape, **kind)) for name, shape in names.items()}
norm = torch.nn.Parameter(torch.ones(hidden, **kind))
optimizer = torch.optim.SGD([norm, *weights.values()], lr=1e-2)
teacher = torch.log_softmax(torch.randn(tokens, vocabulary, **kind), dim=-1)
for step in range(steps):
    x = torch.randn(tokens, hidden, **kind)
    labels = torch.randint(vocabulary, (tokens,), device="cuda")
    y = LigerRMSNormFunction.apply(x, norm, 1e-6, 0.0, "llama", False)
    y = LigerSiLUMulFunction.apply(y @ weights["gate"].t(), y @ weights["up"].t())
    logits = (x + y @ weights["down"].t()) @ weights["head"].t()
    distance = LigerJSDFunction.apply(torch.log_softmax(logits, dim=-1), teacher)
    loss = LigerCrossEntropyFunction.apply(logits, labels, None)[0] + distance
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", float(loss))
"""
_CUDA = """#include <cstdio>
#include <vector>

// The mean and the spread of each row, one block a row.
__global__ void row_moments(const float* __restrict__ x, float* __restrict__ mean, float* __restrict__ spread,
                            int cols) {
    __shared__ float sums[256];
    __shared__ float squares[256];
    float sum = 0.0f;
    float square = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float value = x[(size_t)blockIdx.x * cols + i];
        sum += value;
        square += value * value;
    }
    sums[threadIdx.x] = sum;
    squares[threadIdx.x] = square;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (threadIdx.x < s) {
            sums[threadIdx.x] += sums[threadIdx.x + s];
            squares[threadIdx.x] += squares[threadIdx.x + s];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = sums[0] / cols;
        spread[blockIdx.x] = squares[0] / cols - (sums[0] / cols) * (sums[0] / cols);
    }
}

// Through a tile of shared memory, which the second half reads by columns.
__global__ void transpose(const float* __restrict__ in, float* __restrict__ out, int rows, int cols) {
    __shared__ float tile[32][32];
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

int main() {
    const int rows = 4096, cols = 4096;
    std::vector<float> host((size_t)rows * cols);
    for (size_t i = 0; i < host.size(); i++) host[i] = (float)(i % 1009) / 1009 - 0.5f;
    float *x, *y, *mean, *spread;
    cudaMalloc(&x, host.size() * sizeof(float));
    cudaMalloc(&y, host.size() * sizeof(float));
    cudaMalloc(&mean, rows * sizeof(float));
    cudaMalloc(&spread, rows * sizeof(float));
    cudaMemcpy(x, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
    for (int round = 0; round < 200; round++) {
        transpose<<<dim3(cols / 32, rows / 32), dim3(32, 8)>>>(x, y, rows, cols);
        row_moments<<<cols, 256>>>(y, mean, spread, rows);
    }
    cudaMemcpy(host.data(), mean, rows * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%s %f\\n", cudaGetErrorString(cudaDeviceSynchronize()), host[17]);
}
"""
_NORM = """#include <torch/extension.h>

__global__ void norm_kernel(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y,
                            int cols, float eps) {
    __shared__ float partial[256];
    const float* row = x + (size_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += row[i] * row[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    float scale = rsqrtf(partial[0] / cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) y[(size_t)blockIdx.x * cols + i] = row[i] * scale * weight[i];
}

torch::Tensor norm(torch::Tensor x, torch::Tensor weight, double eps) {
    auto y = torch::empty_like(x);
    norm_kernel<<<x.size(0), 256>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1),
                                    (float)eps);
    return y;
}
"""
_BINDINGS = """#include <torch/extension.h>
torch::Tensor norm(torch::Tensor x, torch::Tensor weight, double eps);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("norm", &norm, py::arg("x"), py::arg("weight"), py::arg("eps")); }
"""
_EXTENDED = """import sys
import torch
from torch.utils.cpp_extension import load

rows, cols, steps = map(int, sys.argv[1:])
norms = load("norms", sources=["bindings.cpp", "norm.cu"])
torch.manual_seed(0)
x, weight = torch.randn(rows, cols, device="cuda"), torch.rand(cols, device="cuda")
for _ in range(steps):
    y = norms.norm(x, weight, 1e-6)
print("mean", float(y.mean()))
"""


@dataclass(frozen=True)
class _Program:
    """One of the programs.

    Attributes:
        prepare: writes it into a folder, and returns its command; the second argument is the folder of public kernels.
        sizes: its arguments on a GPU.
        small: its arguments on the emulator.
        snapshots: part of the name of the kernel whose launch is kept; empty for a program in Python.
    """

    prepare: Callable[[Path, Path], list[str]]
    sizes: tuple[int, ...] = ()
    small: tuple[int, ...] = ()
    snapshot: str = ""


def _liger(folder: Path, public: Path) -> list[str]:
    if not (public / "liger" / "liger_kernel").is_dir():
        raise SystemExit(f"{public / 'liger'} has no files of Liger: `tests/wild/fetch.py` fetches them")
    for name in ("cross_entropy", "jsd", "rms_norm", "swiglu"):
        shutil.copy(public / "liger" / f"{name}.py", folder)
    shutil.copytree(public / "liger" / "liger_kernel", folder / "liger_kernel")
    (folder / "train.py").write_text(_LIGER)
    return [sys.executable, "train.py"]


def _cuda(folder: Path, _: Path) -> list[str]:
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise SystemExit("there is no nvcc")
    (folder / "moments.cu").write_text(_CUDA)
    subprocess.run([str(nvcc), "-O2", "-arch=native", "moments.cu", "-o", "moments"], cwd=folder, check=True)
    return ["./moments"]


def _extension(folder: Path, _: Path) -> list[str]:
    for name, text in (("norm.cu", _NORM), ("bindings.cpp", _BINDINGS), ("use.py", _EXTENDED)):
        (folder / name).write_text(text)
    return [sys.executable, "use.py"]


PROGRAMS = {
    "liger": _Program(_liger, (4096, 1024, 2816, 8000, 30), (8, 64, 96, 200, 2)),
    "cuda": _Program(_cuda, snapshot="transpose"),
    "extension": _Program(_extension, (8192, 4096, 300), (5, 100, 3)),
}


async def first_variant(program: _Program, public: Path, budget: float, *, emulate: bool) -> dict[str, Any]:
    """Return the figures of one program; works in the current folder, which is empty."""
    here = Path.cwd()
    command = [*program.prepare(here, public), *map(str, program.small if emulate else program.sizes)]
    row: dict[str, Any] = {}
    if not emulate:
        row["program_first_seconds"] = _run(command)  # it compiles what it does
        row["program_seconds"] = _run(command)
    began = time.perf_counter()
    snapshot = ChosenLaunch(program.snapshot) if program.snapshot else None
    captured = capture_program(
        command, here / FOLDER, emulate=emulate, aside=True, cache=here / "cache", snapshot=snapshot
    )
    row["captured_seconds"] = time.perf_counter() - began
    if captured.code:
        return row | {"error": f"the program ended with {captured.code}"}
    row["workloads"] = {made.function: _share(made) for made in captured.seen.captures}
    row["without"] = dict(captured.unmade) | {one.name: one.why for one in captured.seen.kernels if one.why}
    began = time.perf_counter()
    row["searches"] = await _searches(captured, here, budget, emulate=emulate)
    return row | _sums(row)


def _run(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=sys.stderr)
    return time.perf_counter() - began


def _share(made: Capture) -> float:
    return round(made.share(made.cases) or 0.0, 4)


async def _searches(captured: Captured, here: Path, budget: float, *, emulate: bool) -> list[dict[str, Any]]:
    """Search for variants of the captured files, largest share first, until one is verified or the budget is spent."""
    pairs = zip(captured.seen.captures, captured.written, strict=True)
    ranked = sorted(pairs, key=lambda pair: -_share(pair[0]))
    rows, ends = list[dict[str, Any]](), time.perf_counter() + budget
    for made, path in ranked:
        left = ends - time.perf_counter()
        if left < 1 or any(row.get("verified_seconds") for row in rows):
            break
        rows.append(await _search(made, path, here, left, emulate=emulate))
    return rows


async def _search(made: Capture, capture: Path, here: Path, budget: float, *, emulate: bool) -> dict[str, Any]:
    """Search for a variant of one captured function; stops at the first that is verified."""
    paths = {"cache": here / "cache", "data": here / "data"}
    settings = Settings.model_validate({"paths": paths, "refine": {"budget": budget, "untimed": emulate}})
    row: dict[str, Any] = {"function": made.function, "file": Path(made.kernel).name, "share": _share(made)}
    stop, began, steps = asyncio.Event(), time.perf_counter(), dict[str, float]()

    def seconds() -> float:
        return time.perf_counter() - began

    def told(what: str) -> None:
        print(f"{made.function}: {seconds():.1f} s: {what}", file=sys.stderr, flush=True)

    def opened() -> None:
        row["open_seconds"] = seconds()
        told("the baseline is measured")

    def doing(progress: SearchProgress) -> None:
        if progress.doing not in steps:
            told(progress.doing)
        steps.setdefault(progress.doing, round(seconds(), 1))

    def decided(verdict: Verdict) -> None:
        row.setdefault("first_verdict_seconds", seconds())
        told(f"{verdict.verdict}: {verdict.reason}, {verdict.seconds}")
        if verdict.verdict == "FASTER" and verdict.speedup is not None and "verified_seconds" not in row:
            row["verified_seconds"] = seconds()
            row["label"], row["speedup"] = verdict.evidence.candidate_label, verdict.speedup
            row["interval"], row["stage_seconds"] = verdict.interval, verdict.seconds
            stop.set()

    try:
        with open_store(settings.paths.data) as store:
            target = make_target(Path(made.kernel), None, capture)
            found = await refine_target(
                target, settings, store, stop, on_progress=doing, on_open=opened, on_verdict=decided
            )
    except KernelLspError as error:
        return row | {"error": str(error)}
    outcomes = [one.feedback.verdict.value for one in found.tried]
    row["outcomes"] = {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)}
    row["tried"] = [[one.candidate.label, one.feedback.verdict.value, one.feedback.ratio] for one in found.tried]
    return row | {"seconds": seconds(), "reason": found.reason, "steps": steps}


def _sums(row: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds on top of the program until there was a verdict and a verified variant."""
    if "program_seconds" not in row:
        return {}
    surplus = row["captured_seconds"] - row["program_seconds"]
    searches = row["searches"]
    before = sum(one.get("seconds", 0.0) for one in searches[:-1])
    verified = searches[-1].get("verified_seconds") if searches else None
    verdict = next((one["first_verdict_seconds"] for one in searches if "first_verdict_seconds" in one), None)
    on_top = None if verified is None else surplus + before + verified
    return {
        "capture_surplus_seconds": surplus,
        "first_verdict_on_top_seconds": None if verdict is None else surplus + verdict,
        "verified_on_top_seconds": on_top,
        "within_goal": on_top is not None and on_top <= GOAL_SECONDS,
    }


async def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--public", type=Path, default=Path(".public"))
    parser.add_argument("--budget", type=float, default=GOAL_SECONDS)
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    public, home = given.public.resolve(), Path.cwd()
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    rows: dict[str, Any] = {}
    for name in given.only:
        if given.emulate and PROGRAMS[name].snapshot:
            print(f"{name}: no launch can be kept without a GPU", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            for variable in ("TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
                os.environ[variable] = str(Path(scratch) / variable)
            (Path(scratch) / "project").mkdir()
            os.chdir(Path(scratch) / "project")
            try:
                rows[name] = await first_variant(PROGRAMS[name], public, given.budget, emulate=given.emulate)
            finally:
                os.chdir(home)
        print(json.dumps({name: rows[name]}, indent=2, default=str), flush=True)
        if given.record and not given.emulate:
            record("first_variant", {"goal_s": GOAL_SECONDS, "budget_s": given.budget, "programs": rows})


if __name__ == "__main__":
    asyncio.run(main())
