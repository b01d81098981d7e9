"""`profile`: what each line executes and moves, the same on any machine, and nothing where nothing ran."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.forked_commands import forked

pytest.importorskip("torch")

KERNEL = """extern "C" __global__ void spread(const float* x, float* y, int n) {
    __shared__ float tile[32 * 32];
    int t = threadIdx.x;
    tile[t * 32] = t < n ? x[t * 8] : 0.0f;  // each word in one bank, each load in a sector of its own
    __syncthreads();
    if (t < n) {
        y[t] = tile[t * 32] + 1.0f;
    }
}
"""
WORKLOAD = """import torch

CASES = [{"n": 16}]
CONTRACT = {"listed_sizes": True}


def inputs(n):
    return (torch.randn(8 * n, device="cuda"),)


def reference(x):
    return x[::8] + 1


def launch(module, x):
    n = x.numel() // 8
    y = torch.empty(n, device=x.device)
    module.spread[1, 32](x, y, n)
    return y
"""


def profile(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        forked("profile", "spread.cu", *args),
        env=os.environ
        | {
            "KERNEL_LSP_PATHS_CACHE": str(folder / "cache"),
            "KERNEL_LSP_PATHS_DATA": str(folder / "data"),
            "CUDA_VISIBLE_DEVICES": "",
            "COLUMNS": "140",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_lines_are_shown_with_what_they_execute_and_move(tmp_path: Path) -> None:
    (tmp_path / "spread.cu").write_text(KERNEL)
    (tmp_path / "spread_workload.py").write_text(WORKLOAD)
    said = profile(tmp_path, "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert (found["counted_by"], found["cases"], found["problem"]) == ("emulator", ["n=16"], "")
    (kernel,) = found["kernels"]
    assert kernel["kernel"] == "spread"
    assert kernel["launches"] == kernel["blocks"] > 0
    assert sum(line["instruction_share"] for line in kernel["lines"]) == pytest.approx(1)
    lines = {line["line"]: line for line in kernel["lines"]}
    assert lines[4]["text"].startswith("tile[t * 32] = t < n ? x[t * 8] : 0.0f;")
    loads = lines[4]["counts"]
    assert loads["load_sectors"] == 16 * loads["load_requests"] > 0, "16 threads, each in a sector of its own"
    assert loads["load_ideal_sectors"] == 2 * loads["load_requests"]
    assert loads["shared_store_conflicts"] == 31 * loads["shared_store_requests"]
    assert lines[7]["active_share"] == 0.5
    assert lines[7]["traffic_share"] == pytest.approx(2 / 18)

    shown = profile(tmp_path)
    assert shown.returncode == 0, shown.stderr
    (row,) = [line for line in shown.stdout.splitlines() if "x[t * 8]" in line]  # what is in brackets is code
    assert "16.0 (2.0)" in row
    assert "32.0" in row
    assert "Counted by the emulator on n=16 (sm_90), no times" in shown.stdout


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "spread.cu").write_text(KERNEL)
    said = profile(tmp_path)
    assert said.returncode == 3
    assert said.stdout.strip() == (
        "spread.cu: nothing was counted: it has no workload, and so nothing was run: "
        "`kernel-lsp draft spread.cu --write` makes a first one."
    )
    (tmp_path / "spread_workload.py").write_text(f"# kernel-lsp: draft\n{WORKLOAD}")
    said = profile(tmp_path)
    assert said.returncode == 3
    assert " ".join(said.stdout.split()) == (
        "spread.cu: nothing was counted: spread_workload.py:1: the workload is a draft, not accepted yet. "
        "Read it, make it say what the kernel is for, then remove this line."
    )
