"""What a captured workload's verdict says a program gains, beside what it gains: `python -m tests.bench.captured_gain`.

A program of matrix products and sums of rows in three shapes is captured, and a version of its kernel with other warps
judged by the capture. Then the program runs with either version in turn, ABBA, and reports its own seconds a step with
the GPU waited for. The verdict's share is of GPU time, which leaves out gaps, so the two need not agree: by how much
they do not is the figure. Options: --steps N of the program (default 300), --rounds N of ABBA (default 5), --record.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from kernel_lsp.capture.run import capture_program
from kernel_lsp.workload.capture import FOLDER
from tests.bench.record import record

_CLI = "from kernel_lsp.cli.main import main; main()"
KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def row_sums_kernel(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        places = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * cols + places, mask=places < cols, other=0.0)
    tl.store(out + row, tl.sum(total))


def row_sums(x):
    out = torch.empty(x.shape[0], device=x.device)
    row_sums_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024, num_warps=WARPS)
    return out
"""
_PROGRAM = """import json
import sys
import time
import torch
from ops import row_sums

steps = int(sys.argv[1])
torch.manual_seed(0)
inputs = [(torch.randn(rows, cols, device="cuda"), times) for rows, cols, times in SHAPES]
weight = torch.randn(2048, 2048, device="cuda")


def step():
    for x, times in inputs:
        for _ in range(times):
            row_sums(x)
    return weight @ weight


for _ in range(10):
    step()
torch.cuda.synchronize()
began = time.perf_counter()
for _ in range(steps):
    step()
torch.cuda.synchronize()
print(json.dumps((time.perf_counter() - began) / steps))
""".replace("SHAPES", "((4096, 4096, 4), (512, 8192, 2), (16384, 1024, 1))")


def step_seconds(folder: Path, text: str, steps: int) -> float:
    """Seconds of one step of the program with this kernel file."""
    (folder / "ops.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "train.py", str(steps)], cwd=folder, capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout))


def gain_of(folder: Path, candidate: str, capture: Path) -> tuple[str, dict[str, Any] | None]:
    """The outcome of judging a version by the capture, and what it says the program gains."""
    (folder / "variant.py").write_text(candidate)
    command = [sys.executable, "-c", _CLI, "judge", "ops.py", "variant.py", "--workload", str(capture), "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = json.loads(done.stdout)
    verdict = said[0] if isinstance(said, list) else said
    return verdict["verdict"], verdict["evidence"]["program"]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    before, after = (KERNEL.replace("WARPS", warps) for warps in ("1", "8"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "ops.py").write_text(before)
        (folder / "train.py").write_text(_PROGRAM)
        program = [sys.executable, str(folder / "train.py"), str(options.steps)]
        captured = capture_program(program, folder / FOLDER, cache=folder / "cache")
        outcome, gain = gain_of(folder, after, captured.written[0].resolve())
        ratios: list[float] = []
        for _ in range(options.rounds):
            a, b, c, d = (step_seconds(folder, text, options.steps) for text in (before, after, after, before))
            ratios.append((a + d) / (b + c))
    figures = {"outcome": outcome, "said": gain, "seen": median(ratios), "least": min(ratios), "most": max(ratios)}
    print(json.dumps(figures, indent=2))
    if options.record:
        record("captured_gain", figures)


if __name__ == "__main__":
    main()
