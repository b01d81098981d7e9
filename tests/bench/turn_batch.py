"""A sweep over KernelBench's problems whose answers come from files, judged to its end and again with a worker killed.

`python -m tests.bench.turn_batch --root KernelBench`: `kernel-lsp refine --turn-batch` of fourteen problems of level 1,
two answers on each: recorded candidates of `tests/kernelbench`, and for problems 52 and 93, which none of these
answers, the two below. The second sweep loses one of its workers by SIGKILL when a third of its answers is judged.
Options: --root FOLDER; --problems N (14); --sweep whole or --sweep killed for one of both; --keep FOLDER for what a
sweep wrote, whose `data` `tests.bench.openings` reads; --record.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.turn_outcome import NOT_JUDGED
from tests.bench.record import record

NAME = "turn_batch"
SWEEPS = ("whole", "killed")
CANDIDATES = Path(__file__).parents[1] / "kernelbench/candidates"
PROBLEMS = ("52", "93", "19", "23", "36", "40", "26", "94", "89", "25", "49", "51", "12", "88", "95", "21")
TRAJECTORIES = 2
COMMAND = "from kernel_lsp.cli.main import main; main()"
WORKER = "kernel_lsp.runner"
UNDECIDED = (NOT_JUDGED, Outcome.UNTIMED.value)
ARGMIN = """__global__ void argmin(const float* x, int64_t* out, int length, int inner, int64_t outputs) {
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= outputs) return;
    const float* column = x + at / inner * length * inner + at % inner;
    float least = column[0];
    int64_t place = 0;
    for (int k = 1; k < length; k++) {
        float value = column[(int64_t)k * inner];
        if (value < least) { least = value; place = k; }
    }
    out[at] = place;
}

torch::Tensor run(torch::Tensor x) {
    int length = x.size(1), inner = x.size(2);
    auto out = torch::empty({x.size(0), x.size(2)}, x.options().dtype(torch::kInt64));
    int64_t outputs = out.numel();
    argmin<<<(outputs + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<int64_t>(), length, inner, outputs);
    return out;
}"""
MASKED = """__global__ void masked_sum(const float* x, const bool* mask, float* out, int rows, int length) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int64_t begin = (int64_t)row * length;
    float sum = 0.0f, lost = 0.0f;
    for (int k = 0; k < length; k++) {
        float next = (mask[begin + k] ? x[begin + k] : 0.0f) - lost;
        float total = sum + next;
        lost = (total - sum) - next;
        sum = total;
        out[begin + k] = sum;
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor mask) {
    auto out = torch::empty_like(x);
    int rows = x.size(0), blocks = (rows + 63) / 64;
    masked_sum<<<blocks, 64>>>(x.data_ptr<float>(), mask.data_ptr<bool>(), out.data_ptr<float>(), rows, x.size(1));
    return out;
}"""
MODEL = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
{source}
"""
op = load_inline(name="{name}", cpp_sources="torch::Tensor run({declared});", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, {given}):
        return op.run({given})
'''
OWN = {
    "52": MODEL.format(source=ARGMIN, name="argmin", declared="torch::Tensor x", given="x"),
    "93": MODEL.format(
        source=MASKED, name="masked_sum", declared="torch::Tensor x, torch::Tensor mask", given="x, mask"
    ),
}


def answers_on(problem: str) -> list[str]:
    """Return the texts of two answers on a problem of level 1; the second is the first with a comment if need be."""
    found = [OWN[problem]] if problem in OWN else []
    for path in sorted(CANDIDATES.glob(f"level_1_problem_{problem}_sample_*_kernel.py")):
        text = path.read_text()
        found += [text] if "load_inline" in text else []
    found = found[:TRAJECTORIES]
    return [*found, *[f"{found[0]}\n# once more"] * (TRAJECTORIES - len(found))]


def problem_files(root: Path, count: int) -> dict[str, Path]:
    """Return the files of so many of the problems, by number."""
    there = {path.name.partition("_")[0]: path for path in (root / "KernelBench/level1").glob("*.py")}
    chosen = [number for number in PROBLEMS if number in there][:count]
    return {number: there[number] for number in chosen}


def command(folder: Path, *words: object) -> list[str]:
    """The command that takes a turn of the sweep in a folder."""
    return [sys.executable, "-c", COMMAND, "refine", "--turn-batch", str(folder / "sweep"), *map(str, words)]


def write_answers(folder: Path, problems: dict[str, Path]) -> int:
    """Answer the requests of the first turn, and return how many there are."""
    turn = folder / "sweep/turn-01"
    lines: list[str] = []
    for line in (turn / "requests.jsonl").read_text().splitlines():
        request = json.loads(line)
        kernel, trajectory = map(int, re.findall(r"\d+", request["custom_id"])[:2])
        said = answers_on(list(problems)[kernel])[trajectory]
        message = {"role": "assistant", "content": f"```python\n{said}\n```\nA kernel of its own."}
        body = {"choices": [{"message": message, "finish_reason": "stop"}]}
        lines.append(json.dumps({"custom_id": request["custom_id"], "response": {"status_code": 200, "body": body}}))
    (turn / "answers.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return len(lines)


def outcomes(folder: Path) -> list[dict[str, Any]]:
    """Return the judged outcomes of the first turn."""
    path = folder / "sweep/turn-01/outcomes.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kill_a_worker(run: subprocess.Popen[bytes]) -> str:
    """Kill the worker that was started last, and return what it was."""
    below: list[tuple[float, int, str]] = []
    for one in psutil.Process(run.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            below.append((one.create_time(), one.pid, " ".join(one.cmdline())))
    _, latest, what = max(row for row in below if WORKER in row[2])
    os.kill(latest, signal.SIGKILL)
    return what[-80:]


def judge_all(folder: Path, known: dict[str, str], *, kill_after: int | None, begun: float) -> str | None:
    """Run the command that judges the answers, printing each outcome, and return the worker that was killed, if any.

    Raises:
        AssertionError: the command failed or printed a traceback.
    """
    said, seen, killed = folder / "said.txt", 0, None
    with said.open("wb") as out:
        run = subprocess.Popen(command(folder), env=os.environ | known, stdout=out, stderr=subprocess.STDOUT)
        ended = False
        while not ended:
            time.sleep(0.2)
            ended = run.poll() is not None
            found = outcomes(folder)
            for one in found[seen:]:
                why = one["told"] if one["outcome"] in UNDECIDED else ""
                print(f"{time.monotonic() - begun:7.1f} s  {one['custom_id']} {one['outcome']} {why}", flush=True)
            seen = len(found)
            if kill_after is not None and killed is None and not ended and seen >= kill_after:
                killed = kill_a_worker(run)
                print(f"killed {killed}", flush=True)
    text = said.read_text()
    assert run.returncode == 0, text
    assert "Traceback" not in text, text
    return killed


def sweep(root: Path, count: int, folder: Path, *, killing: bool) -> dict[str, Any]:
    """Run a sweep in an empty folder, and return what came of its answers.

    Raises:
        AssertionError: the command failed, printed a traceback, or left an answer without an outcome.
    """
    problems = problem_files(root, count)
    known = {
        "KERNEL_LSP_PATHS_DATA": str(folder / "data"),
        "KERNEL_LSP_PATHS_CACHE": str(folder / "cache"),
        "KERNEL_LSP_MODEL_PROFILE": "general",
        "KERNEL_LSP_MODEL_NAME": "files",
        "KERNEL_LSP_REFINE_TURNS": "1",
        "KERNEL_LSP_REFINE_UNTIMED": "true",  # without a GPU the emulator judges
        "KERNEL_LSP_REFINE_TRAJECTORIES": str(TRAJECTORIES),
        "KERNEL_LSP_RUNNER_WARM_MINUTES": "0",  # so that its workers are its own, and one can be killed
    }
    begun = time.monotonic()
    given = command(folder, *problems.values(), "--write", "cuda")
    first = subprocess.run(given, env=os.environ | known, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    asked = write_answers(folder, problems)
    asking = round(time.monotonic() - begun, 1)
    print(f"{asked} requests in {asking} s", flush=True)
    killed = judge_all(folder, known, kill_after=asked // 3 if killing else None, begun=begun)
    found = outcomes(folder)
    assert len({one["custom_id"] for one in found}) == asked
    results = Counter(one["outcome"] for one in found)
    return {
        "answers": asked,
        "results": dict(results.most_common()),
        "not_judged": results[NOT_JUDGED],
        "undecided": {one["custom_id"]: one["told"] for one in found if one["outcome"] in UNDECIDED},
        "killed": killed,
        "asking_s": asking,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    """Sweep twice, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=14)
    parser.add_argument("--sweep", choices=SWEEPS)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"problems": list(problem_files(options.root, options.problems))}
    for name in [options.sweep] if options.sweep else SWEEPS:
        with tempfile.TemporaryDirectory(prefix="kl-") as scratch:
            folder = (options.keep or Path(scratch)) / name
            folder.mkdir(parents=True)
            found[name] = sweep(options.root, options.problems, folder, killing=name == "killed")
    print(json.dumps(found, indent=1))
    if options.record:
        print(record("_".join(filter(None, (NAME, options.sweep))), found))


if __name__ == "__main__":
    main()
