"""A kernel with `tcgen05` on a machine without a GPU: compiled and listed for Blackwell, and never said to have run."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_lsp.compiler.toolchain.toolkit import find_tools
from tests.forked_commands import forked

FIXTURES = Path(__file__).parents[2] / "fixtures/blackwell"
ALLOCATES = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kernel_lsp(tmp_path: Path) -> Run:
    for file in FIXTURES.iterdir():
        shutil.copy(file, tmp_path)

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        folders = {"KERNEL_LSP_PATHS_DATA": str(tmp_path / "data"), "KERNEL_LSP_PATHS_CACHE": str(tmp_path / "cache")}
        environment = {**os.environ, **folders, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "160"}
        return subprocess.run(forked(*args), env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    return run


def line_of(text: str) -> int:
    lines = (FIXTURES / "there_and_back.cu").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_facts_are_of_blackwell_where_nobody_chose_a_gpu(kernel_lsp: Run) -> None:
    for _ in range(2):  # the second time from the cache
        answer = kernel_lsp("facts", "there_and_back.cu", "--json")
        (facts,) = json.loads(answer.stdout)
        (kernel,) = facts["kernels"]
        assert (answer.returncode, facts["arch"], facts["diagnostics"]) == (0, "sm_100a", [])
        assert (kernel["tensor_columns"], kernel["tensor_blocks"], kernel["occupancy"]) == (128, 4, 1.0)
    shown = kernel_lsp("facts", "there_and_back.cu").stdout
    assert "128 of 512 columns of tensor memory, room for 4 blocks of a multiprocessor at a time" in shown


@pytest.mark.skipif(not list(find_tools("nvdisasm")), reason="needs nvdisasm")
def test_its_listing_has_the_instructions_at_their_lines(kernel_lsp: Run) -> None:
    listing = kernel_lsp("facts", "there_and_back.cu", "--sass").stdout
    assert "STTM tmem[" in listing
    assert "LDTM " in listing


def test_a_check_names_what_is_not_run_and_does_not_call_it_well(kernel_lsp: Run) -> None:
    answer = kernel_lsp("check", "there_and_back.cu")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"not run: `{ALLOCATES}` is not emulated. (there_and_back.cu:{line_of('tcgen05.alloc')})" in answer.stdout
    assert "1 file, 1 kernel, sm_100a: no errors, 1 file compiled and not run" in answer.stdout


@pytest.mark.parametrize("how", ["facts", "check"])
def test_for_another_gpu_it_is_one_error_that_says_what_to_do(kernel_lsp: Run, tmp_path: Path, how: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-lsp]\narch = ["sm_90"]\n')
    answer = kernel_lsp(how, "there_and_back.cu")
    said = answer.stdout + answer.stderr
    assert answer.returncode == 1
    assert said.count("error: ") == 1
    assert f"there_and_back.cu:{line_of('tcgen05.alloc')}:" in said
    assert "`tcgen05.alloc` exists on sm_100a and its family alone" in said
    assert "`facts --arch sm_100a`" in said
