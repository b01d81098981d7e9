"""Twenty kernels, three turns, a model that answers from files: killed twice, it ends as if nothing had happened."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked_commands import forked

KERNELS, TURNS = 20, 3
KERNEL = """// Number {n}: y = {n} * x.
__global__ void scale(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = {n} * x[i];
}}
"""
WORKLOAD = """import torch

CASES = [dict(n=40)]
CONTRACT = dict(contiguous=True, aligned=16)


def inputs(n):
    return (torch.arange(n, device="cuda", dtype=torch.float32),)  # the same in every session, as prompts quote it


def reference(x):
    return {n} * x


def launch(module, x):
    y = torch.empty_like(x)
    module.scale[((x.numel() + 31) // 32,), (32,)](x, y, x.numel())
    return y
"""
ANSWERS = (
    "if (i < n) y[i] = x[i] + x[i] * ({n} - 1);",  # right
    "if (i < n) y[i] = {n} * x[i] + 1;",  # wrong
    "if (i < n) y[i] = {n} * z[i];",  # does not compile
)


def run(folder: Path, *arguments: str, real: bool = False) -> subprocess.Popen[str]:
    """The command; only the `real` one ends at once when it is killed."""
    home = folder / "home"
    environment = os.environ | {
        "KERNEL_LSP_PATHS_DATA": str(home / "data"),
        "KERNEL_LSP_PATHS_CACHE": str(folder.parent / "cache"),
        "KERNEL_LSP_MODEL_PROFILE": "general",
        "KERNEL_LSP_REFINE_TURNS": str(TURNS),
        "KERNEL_LSP_REFINE_TRAJECTORIES": "1",
        "KERNEL_LSP_JUDGE_FAMILIES": "normal",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "200",
    }
    start = [sys.executable, "-c", "from kernel_lsp.cli.main import main; main()"] if real else forked()
    call = [*start, "refine", "--turn-batch", "sweep", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(call, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def answered(folder: Path, turn: int) -> None:
    """Answer a turn's requests as `vllm run-batch` does."""
    place = folder / "sweep" / f"turn-{turn:02}"
    lines = []
    for line in (place / "requests.jsonl").read_text().splitlines():
        one = json.loads(line)["custom_id"]
        n = int(one.split("-")[0]) + 2
        old = f"    if (i < n) y[i] = {n} * x[i];"
        new = "    " + ANSWERS[(n + turn) % 3].format(n=n)
        text = f"```\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\nTurn {turn} of kernel {n}."
        message = {"role": "assistant", "content": text, "reasoning": "hm"}
        body = {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
        lines.append(json.dumps({"id": "x", "custom_id": one, "response": {"status_code": 200, "body": body}}))
    (place / "answers.jsonl").write_text("\n".join(lines) + "\n")


def finished(folder: Path, *arguments: str) -> str:
    out, err = (process := run(folder, *arguments)).communicate(timeout=500)
    assert process.returncode == 0, out + err
    return out


def killed(folder: Path, turn: int, after: int) -> None:
    """Start a call and kill it when so many answers of a turn are judged."""
    process = run(folder, real=True)
    outcomes = folder / "sweep" / f"turn-{turn:02}" / "outcomes.jsonl"
    until = time.monotonic() + 400
    while time.monotonic() < until and not (outcomes.exists() and outcomes.read_text().count("\n") >= after):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with outcomes.open("a") as file:
        file.write('{"custom_id": "00')  # what a call that dies in the middle of a line leaves behind


def kept(folder: Path) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    with sqlite3.connect(folder / "home" / "data" / "store.sqlite3") as store:
        columns = "session, number, candidate, prompt, answer, verdict, target, outcome"
        turns = f"SELECT {columns} FROM turns ORDER BY session, number"
        verdicts = "SELECT id, verdict, stage, baseline, candidate, label FROM verdicts ORDER BY id"
        return store.execute(turns).fetchall(), store.execute(verdicts).fetchall()


def sweep(folder: Path, kills: dict[int, int]) -> str:
    """A whole sweep; `kills` says at which turn, and after how many answers, a call is killed."""
    folder.mkdir()
    names = []
    for n in range(2, KERNELS + 2):
        (folder / f"scale_{n:02}.cu").write_text(KERNEL.format(n=n))
        (folder / f"scale_{n:02}_workload.py").write_text(WORKLOAD.format(n=n))
        names.append(f"scale_{n:02}.cu")
    said = finished(folder, *names)
    assert f"Turn 1 of {TURNS}: {KERNELS} answers are missing." in said
    for turn in range(1, TURNS + 1):
        answered(folder, turn)
        if turn in kills:
            killed(folder, turn, kills[turn])
        said = finished(folder)
    return said


def test_what_was_not_answered_is_waited_for(tmp_path):
    (tmp_path / "scale.cu").write_text(KERNEL.format(n=2))
    (tmp_path / "scale_workload.py").write_text(WORKLOAD.format(n=2))
    finished(tmp_path, "scale.cu")
    place = tmp_path / "sweep/turn-01"
    refused = {"status_code": 400, "body": None}
    error = {"error": {"message": "The prompt is too long.", "code": 400}}
    (place / "answers.jsonl").write_text(json.dumps({"custom_id": "0000-00", "response": refused, "error": error}))
    out, err = (process := run(tmp_path)).communicate(timeout=100)
    assert process.returncode == 1
    assert "answers.jsonl:1: 0000-00 was not answered: The prompt is too long." in err
    assert f"Turn 1 of {TURNS}: 1 answers are missing." in out
    answered(tmp_path, 1)
    assert f"Turn 2 of {TURNS}: 1 answers are missing." in finished(tmp_path)


@pytest.mark.thorough
def test_what_is_no_answer_is_named_with_its_line(tmp_path):
    (tmp_path / "scale.cu").write_text(KERNEL.format(n=2))
    (tmp_path / "scale_workload.py").write_text(WORKLOAD.format(n=2))
    finished(tmp_path, "scale.cu")
    (tmp_path / "sweep/turn-01/answers.jsonl").write_text('{"custom_id": "0000-00"}\n{"custom_id": \n')
    _, err = (process := run(tmp_path)).communicate(timeout=100)
    assert process.returncode == 2
    assert "answers.jsonl:2" in err
    assert "This line is not JSON" in err


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_sweep_that_is_killed_twice_ends_in_the_same_store(tmp_path):
    said = sweep(tmp_path / "calm", {})
    assert f"All {TURNS} turns are done." in said
    assert f"{KERNELS * TURNS} answers judged" in said
    assert sweep(tmp_path / "troubled", {1: 7, 3: 11}) == said
    turns, verdicts = kept(tmp_path / "calm")
    assert len(turns) == KERNELS * TURNS
    assert {row[1] for row in verdicts} == {"UNTIMED", "WRONG", "BUILD_FAILED", "SAME"}  # 2 x and x + x: one code
    assert (turns, verdicts) == kept(tmp_path / "troubled")
    second = [row for row in turns if row[1] == 2]
    assert all("<think>" not in str(row[3]) for row in second), "reasoning is never sent back"
    assert any("and should be" in str(row[3]) for row in second), "the next turn hears of the wrong element"
    assert any("identifier" in str(row[3]) for row in second), "and of the compiler's error"
