"""The commands end to end on a machine without a GPU, which every machine is that hides its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked_commands import forked

START = "from kernel_lsp.cli.main import main; main()"
KERNEL = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
WORKLOAD = """
import torch

CASES = [dict(n=1000)]

def inputs(n):
    return (torch.randn(n, device="cuda"),)

def reference(x):
    return 2 * x

def launch(module, x):
    y = torch.empty_like(x)
    module.scale[(x.numel() + 255) // 256, 256](x, y, x.numel())
    return y
"""


@pytest.fixture
def kernel_lsp(tmp_path):
    (tmp_path / "scale.cu").write_text(KERNEL)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        folders = {"KERNEL_LSP_PATHS_DATA": str(tmp_path / "data"), "KERNEL_LSP_PATHS_CACHE": str(tmp_path / "cache")}
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **folders}
        return subprocess.run(
            forked(*args),
            env=environment | {"COLUMNS": "100"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )

    return run


def test_a_model_that_no_gpu_here_holds(kernel_lsp):
    answer = kernel_lsp("model", "fit", "kevin-32b")
    assert answer.returncode == 3, answer.stderr
    assert "No model can be served here: this machine has no GPU." in answer.stderr


def test_check_is_green_on_a_good_kernel(kernel_lsp):
    answer = kernel_lsp("check", "scale.cu")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.startswith("✓ scale.cu  ")
    assert "checks passed" in answer.stdout
    assert "1 file, 1 kernel, sm_90: all well" in answer.stdout


def test_check_finds_an_error_at_its_place(kernel_lsp, tmp_path):
    (tmp_path / "scale.cu").write_text(KERNEL.replace("2.0f * x[i]", "two * x[i]"))
    answer = kernel_lsp("check", "scale.cu")
    assert answer.returncode == 1
    assert 'scale.cu:4:23: error: identifier "two" is undefined' in answer.stdout
    said = json.loads(kernel_lsp("check", "scale.cu", "--json").stdout)
    assert not said["ok"]
    assert (said["files"][0]["path"], said["files"][0]["diagnostics"][0]["line"]) == ("scale.cu", 4)


@pytest.mark.thorough
def test_facts_for_two_architectures(kernel_lsp):
    answer = kernel_lsp("facts", "scale.cu", "--arch", "sm_80,sm_90", "--json")
    assert answer.returncode == 0, answer.stderr
    first, second = json.loads(answer.stdout)
    assert (first["arch"], second["arch"]) == ("sm_80", "sm_90")
    assert first["kernels"][0]["name"] == "scale"
    assert 0 < first["kernels"][0]["registers"] <= 255
    lines = kernel_lsp("facts", "scale.cu", "--arch", "sm_80").stdout.splitlines()
    assert lines[1].strip() == "scale"
    assert lines[2].split()[0] == "sm_80"


def test_check_finds_what_lies_out_of_bounds(kernel_lsp, tmp_path):
    (tmp_path / "scale.cu").write_text(KERNEL.replace("if (i < n) ", ""))
    answer = kernel_lsp("check", "scale.cu", "--json")
    assert answer.returncode == 1
    (file,) = json.loads(answer.stdout)["files"]
    found = [d for d in file["diagnostics"] if "but `y` has 1,000 elements" in d["message"]]
    assert [(d["path"], d["line"]) for d in found] == [("scale.cu", 4)], file["diagnostics"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "verdict", "words"),
    [
        ("if (i < n) y[i] = 3.0f * x[i];", "WRONG", "on case n=1000 output 0 is wrong from index [0] on"),
        ("y[i] = i < n ? 2.0f * x[i] : 0.0f;", "RUN_FAILED", "line 4: "),
    ],
)
def test_judge_runs_candidates_on_the_emulator(kernel_lsp, tmp_path, body, verdict, words):
    (tmp_path / "other.cu").write_text(KERNEL.replace("if (i < n) y[i] = 2.0f * x[i];", body))
    answer = kernel_lsp("judge", "scale.cu", "other.cu", "--json")
    said = json.loads(answer.stdout)
    assert (said["verdict"], answer.returncode) == (verdict, 1)
    assert words in said["reason"]


@pytest.mark.thorough
def test_judge_claims_nothing_of_a_right_candidate(kernel_lsp, tmp_path):
    (tmp_path / "other.cu").write_text(KERNEL.replace("2.0f * x[i]", "x[i] + x[i] * 1.0000001f"))
    answer = kernel_lsp("judge", "scale.cu", "other.cu", "--json")
    assert answer.returncode == 3, answer.stderr
    said = json.loads(answer.stdout)
    assert (said["verdict"], said["speedup"], said["cases"]) == ("UNTIMED", None, [])
    shown = kernel_lsp("report", said["id"][:6])
    assert "UNTIMED" in shown.stdout
    assert "faster" not in shown.stdout.lower()


@pytest.mark.thorough
def test_a_verdict_is_repeated_by_the_commands_on_its_card(kernel_lsp, tmp_path):
    example = Path(__file__).parents[3] / "examples/triton/softmax.py"
    small = re.sub(r"CASES = \[.*?\n\]", "CASES = [dict(rows=4, cols=100)]", example.read_text(), flags=re.DOTALL)
    (tmp_path / "softmax.py").write_text(small)
    (tmp_path / "other.py").write_text(small.replace("num_warps=4", "num_warps=8"))
    first = kernel_lsp("judge", "softmax.py", "other.py")
    assert first.returncode == 3, first.stderr
    assert "UNTIMED" in first.stdout
    commands = [line.split() for line in first.stdout.splitlines() if line.startswith("  kernel-lsp ")]
    for name in ("softmax.py", "other.py"):
        (tmp_path / name).unlink()
    (_, *write), (_, *judge) = commands
    assert kernel_lsp(*write).returncode == 0
    again = kernel_lsp(*judge, "--json")
    assert again.returncode == 3, again.stderr
    said = json.loads(again.stdout)
    assert said["verdict"] == "UNTIMED"
    assert said["id"].startswith(write[1]), "the same texts, workload, settings and tools"
    assert kernel_lsp("report", "--sources", "x").returncode == 2


@pytest.mark.thorough
def test_judge_of_a_candidate_that_does_not_compile(kernel_lsp, tmp_path):
    (tmp_path / "other.cu").write_text(KERNEL.replace("x[i];", "x[i]"))
    answer = kernel_lsp("judge", "scale.cu", "other.cu")
    assert answer.returncode == 1
    assert "BUILD_FAILED" in answer.stdout


OWN_LAUNCH = """
import torch

def launch(module, x):
    y = torch.empty_like(x)
    module.twice[(x.numel() + 63) // 64, 64](x, y, x.numel())
    return y
"""


@pytest.mark.thorough
def test_several_candidates_beside_one_baseline(kernel_lsp, tmp_path):
    renamed = KERNEL.replace("scale", "twice")
    for name, text in {
        "wrong.cu": KERNEL.replace("2.0f", "3.0f"),
        "broken.cu": KERNEL.replace("x[i];", "x[i]"),
        "renamed.cu": renamed,
        "twice.cu": renamed,
        "twice_workload.py": OWN_LAUNCH,
        "draft.cu": KERNEL,
        "draft_workload.py": "# kernel-lsp: draft\n" + OWN_LAUNCH,
    }.items():
        (tmp_path / name).write_text(text)
    candidates = ["wrong.cu", "none.cu", "broken.cu", "draft.cu", "renamed.cu", "twice.cu", "scale.cu"]
    answer = kernel_lsp("judge", "scale.cu", *candidates, "--json")
    assert answer.returncode == 2, answer.stderr
    said = json.loads(answer.stdout)["candidates"]
    assert [one["path"] for one in said] == candidates
    outcomes = [one["verdict"] and one["verdict"]["verdict"] for one in said]
    assert outcomes == ["WRONG", None, "BUILD_FAILED", None, "BUILD_FAILED", "UNTIMED", "SAME"]
    assert "no such file" in said[1]["problem"]
    assert "draft" in said[3]["problem"]
    assert "kernel `scale` that the file does not have (it has `twice`)" in said[4]["verdict"]["reason"]
    assert "write CANDIDATE_workload.py beside it" in said[4]["verdict"]["reason"]
    assert said[5]["verdict"]["reason"].startswith("right on the emulator")
    shown = kernel_lsp("judge", "scale.cu", "wrong.cu", "twice.cu")
    assert shown.returncode == 1, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines()[-2:]]
    assert [row[:2] for row in rows] == [["wrong.cu", "WRONG"], ["twice.cu", "UNTIMED"]]
    assert "n=1000 output 0 is wrong" in shown.stdout


@pytest.mark.thorough
def test_each_of_several_workloads_judges_and_is_named(kernel_lsp, tmp_path):
    own = (tmp_path / "scale_workload.py").read_text()
    lower = own.replace("CASES = [", "CASES = [\n    dict(n=33),", 1)
    (tmp_path / "other_workload.py").write_text(f'KERNEL = "scale.cu"\n{lower}')
    (tmp_path / "wrong.cu").write_text(KERNEL.replace("2.0f", "3.0f"))
    answer = kernel_lsp("judge", "scale.cu", "wrong.cu", "--json")
    assert answer.returncode == 1, answer.stderr
    said = json.loads(answer.stdout)["candidates"]
    workloads = ["scale_workload.py", "other_workload.py"]
    assert [Path(one["workload"]).name for one in said] == workloads
    assert [Path(one["verdict"]["evidence"]["workload_path"]).name for one in said] == workloads
    assert [one["verdict"]["verdict"] for one in said] == ["WRONG", "WRONG"]
    named = kernel_lsp("judge", "scale.cu", "wrong.cu", "--workload", "other_workload.py", "--json")
    assert json.loads(named.stdout)["evidence"]["workload_path"].endswith("other_workload.py")


def test_refine_needs_a_gpu(kernel_lsp):
    answer = kernel_lsp("refine", "scale.cu")
    assert answer.returncode == 3
    assert "this machine has no GPU" in answer.stderr
    assert "fix" in answer.stderr


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["refine", "scal.cu"], "Did you mean scale.cu"),
        (["refine", "scale.cu::scal"], "Did you mean scale"),
        (["refine", "scale.cu", "--budget", "soon"], "is not a duration"),
        (["refine", "scale.cu", "--workload", "none.py"], "--workload names no file"),
        (["judge", "scale.cu", "none.cu"], "no such file"),
        (["check", "scale_workload.py"], "no kernel was found"),
        (["facts", "scale.cu", "--arch", "volta"], "`arch = 'volta'`"),
    ],
)
def test_what_cannot_be_used_is_said_with_exit_code_2(kernel_lsp, args, words):
    answer = kernel_lsp(*args)
    assert answer.returncode == 2
    assert words.lower() in " ".join(answer.stderr.split()).lower()
    assert "Traceback" not in answer.stderr


def test_files_of_a_folder_that_cannot_be_read_are_not_passed_over(kernel_lsp, tmp_path):
    Path(tmp_path / "latin.py").write_bytes(b"# f\xfcr alle\nimport triton\n")
    Path(tmp_path / "plain.py").write_bytes(b"# f\xfcr alle\nimport os\n")
    answer = kernel_lsp("check", "--no-run", ".")
    assert answer.returncode == 2
    said = answer.stdout.splitlines()
    assert "Not read: latin.py:1: Byte 0xfc is not UTF-8. Save the file in UTF-8." in said
    assert said[-1] == "1 file, 1 kernel, sm_90: no errors, 1 file compiled and not run, 1 file not read"
    assert "plain.py" not in answer.stdout
    answer = kernel_lsp("check", "--no-run", "--format", "github", ".")
    assert answer.returncode == 2
    assert "not read: latin.py:1" in answer.stderr


def test_a_triton_file_that_python_cannot_parse_is_not_passed_over(kernel_lsp, tmp_path):
    text = "import triton\n\n\n@triton.jit\ndef fill(x, n)\n    pass\n"
    Path(tmp_path / "fill.py").write_text(text)
    answer = kernel_lsp("check", "fill.py")
    assert answer.returncode == 1
    assert "fill.py:5:1: error: Python cannot parse this file: expected ':' [KL001]" in answer.stdout


def test_a_kernel_without_a_workload_is_told_how_to_get_one(kernel_lsp, tmp_path):
    Path(tmp_path / "scale_workload.py").unlink()
    answer = kernel_lsp("refine", "scale.cu")
    assert answer.returncode == 2
    assert "scale_workload.py" in answer.stderr


def test_an_interrupt_ends_cleanly(tmp_path):
    (tmp_path / "scale.cu").write_text(KERNEL)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD + "\nimport time\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"KERNEL_LSP_PATHS_CACHE": str(tmp_path / "cache"), "KERNEL_LSP_RUNNER_WARM_MINUTES": "0"}
    command = [sys.executable, "-c", START, "check", "scale.cu"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and not children.read_text():
            time.sleep(0.05)
        time.sleep(2)  # past all imports, into the build, which takes a minute
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.strip() == "Stopped."


_INTERRUPTED_IN_THE_MAKING = """
from asyncio import selector_events

class Interrupted(selector_events.BaseSelectorEventLoop):
    def _make_self_pipe(self):
        raise KeyboardInterrupt

selector_events.BaseSelectorEventLoop._make_self_pipe = Interrupted._make_self_pipe
"""


def test_an_interrupt_while_an_event_loop_is_made_ends_cleanly(tmp_path):
    """Such a loop cannot be closed, of which Python would print a traceback."""
    (tmp_path / "scale.cu").write_text(KERNEL)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"KERNEL_LSP_PATHS_CACHE": str(tmp_path / "cache"), "KERNEL_LSP_RUNNER_WARM_MINUTES": "0"}
    command = [sys.executable, "-c", _INTERRUPTED_IN_THE_MAKING + START, "check", "scale.cu"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.strip()) == (130, "Stopped.")
