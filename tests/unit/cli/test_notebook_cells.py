"""The cell magic `%%kernel_lsp` in a real IPython: a cell is checked at the notebook's lines, then run."""

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernel_lsp.cli import notebook

TRITON = """import torch
import triton
import triton.language as tl

CASES = [dict(n=100)]

def inputs(n):
    return (torch.randn(n, device="cuda"),)

def reference(x):
    return 2 * x

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)

def launch(module, x):
    y = torch.empty_like(x)
    module.double[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("KERNEL_LSP_PATHS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNEL_LSP_PATHS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("KERNEL_LSP_RUNNER_WARM_MINUTES", "0")
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "kernel_lsp.cli.notebook")
    return shell


def test_a_cell_that_is_well_runs_as_any_does(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    shell.run_cell_magic("kernel_lsp", "check", TRITON)
    assert "all well" in capsys.readouterr().out
    assert shell.user_ns["double"].__name__ == "double"


def test_a_mistake_is_told_at_the_notebooks_line_and_the_cell_does_not_run(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton")
    wrong = TRITON.replace("mask=at < n), mask=at < n)", "mask=at < n), mask=at <= n)")
    shell.run_cell_magic("kernel_lsp", "check", wrong)
    line = 2 + wrong[: wrong.index("tl.store")].count("\n")  # the magic is the first
    said = capsys.readouterr().out
    assert f"cell.py:{line}:" in said
    assert "KL010" in said
    assert "double" not in shell.user_ns


def test_cuda_text_has_facts_and_is_not_run(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("kernel_lsp", "facts", "__global__ void zero(float* x) { x[threadIdx.x] = 0.0f; }\n")
    said = capsys.readouterr().out
    assert "zero" in said
    assert "Traceback" not in said


def test_what_is_no_command_of_a_cell_is_said(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("kernel_lsp", "refine", "x = 1")
    assert "check and facts, not refine" in capsys.readouterr().out
    assert "x" not in shell.user_ns
    assert notebook.COMMANDS == ("check", "facts")
