"""KernelBench's own harness, asked in a process of its own. Its repository is fetched for measuring only."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kernel_lsp.bench.published import REPEATS, TRIALS
from kernel_lsp.device.nvml import Gpu

SET = Path(__file__).parents[1] / "kernelbench"
"""The candidates that are judged beside it."""
_UNUSED = ("litellm", "openai", "dotenv", "tqdm", "datasets", "requests", "tomli")

THEIRS = f"""
import contextlib, importlib, json, sys, time
from unittest.mock import MagicMock

for name in {_UNUSED!r}:  # of a language model's clients; judging needs none of them
    try:
        importlib.import_module(name)
    except ImportError:
        sys.modules[name] = MagicMock()
asked = json.load(sys.stdin)
sys.path.insert(0, asked["source"])
with contextlib.redirect_stdout(sys.stderr):
    begun = time.perf_counter()
    import torch
    from kernelbench import eval as harness
    imported = time.perf_counter() - begun
    said = {{"imported_s": imported, "seconds": []}}
    if asked["do"] == "build":
        harness.load_custom_model(asked["candidate"], {{}}, asked["folder"])
    if asked["do"] == "dry":
        context = {{}}
        model, init, inputs = harness.load_original_model_and_inputs(asked["problem"], context)
        tolerance = harness.get_tolerance_for_precision("fp32")
        said |= {{"model": model.__name__, "arguments": len(init()), "tolerance": tolerance}}
    for _ in range(asked["times"] if asked["do"] == "judge" else 0):
        begun = time.perf_counter()
        found = harness.eval_kernel_against_ref(
            asked["problem"], asked["candidate"], num_correct_trials=asked["trials"],
            measure_performance=asked["timed"], num_perf_trials=asked["repeats"],
            build_dir=asked["folder"], device=torch.device("cuda:0"), backend=asked["backend"],
        )
        said["seconds"].append(time.perf_counter() - begun)
    if asked["do"] == "judge":
        said |= {{"compiled": found.compiled, "correct": found.correctness, "mean_ms": found.runtime,
                 "reference_ms": found.ref_runtime, "metadata": {{k: str(v)[:300] for k, v in found.metadata.items()}}}}
print(json.dumps(said))
"""


def ask_harness(
    root: Path,
    do: str,
    problem: Path,
    candidate: Path,
    folder: Path,
    limit: float,
    gpu: Gpu | None,
    *,
    times: int = 1,
    trials: int = TRIALS,
    timed: bool = True,
) -> dict[str, Any]:
    """What KernelBench's harness says, in a process of its own; `trouble` where it says nothing.

    Args:
        root: KernelBench's repository.
        do: `build`, `judge`, or `dry` for all but either.
        problem: the problem's file.
        candidate: the candidate's.
        folder: where it builds; a second time it finds there what it has built.
        limit: seconds.
        gpu: on which.
        times: how many times it judges; the first is cold where the folder is new.
        trials: inputs on which an answer must be right; drawing them on the CPU is what takes so long.
        timed: whether what is right is timed, and asked whether it is excessively fast, on two inputs more.
    """
    text = candidate.read_text()
    asked = {
        "do": do,
        "source": str(root / "src"),
        "problem": problem.read_text(),
        "candidate": text,
        "folder": str(folder),
        "backend": "triton" if "@triton.jit" in text else "cuda",
        "times": times,
        "trials": trials,
        "timed": timed,
        "repeats": REPEATS,
    }
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-c", THEIRS],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=limit,
            check=True,
            env=os.environ
            | {"TORCH_EXTENSIONS_DIR": str(folder)}
            | ({"CUDA_VISIBLE_DEVICES": gpu.uuid} if gpu else {}),
        )
        said = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        said = {"trouble": f"no answer in {limit:.0f} s"}
    except subprocess.CalledProcessError as error:
        said = {"trouble": (error.stderr.strip().splitlines() or ["it ended"])[-1][:300]}
    return said | {"process_s": time.perf_counter() - begun}
