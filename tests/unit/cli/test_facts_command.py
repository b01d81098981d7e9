"""`facts`: machine code beside its source, headers beside a file named relatively, and nothing started twice."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernel_lsp.compiler.toolchain.toolkit import find_tools
from tests.forked_commands import forked

NO_PYTHON = "import sys; sys.executable = '/nowhere/python'; from kernel_lsp.cli.main import main; main()"
WITHOUT_WORKERS = (sys.executable, "-c", NO_PYTHON)
KERNEL = """
#include "factor.cuh"
extern "C" __global__ void scale(const float4* x, float4* y) {
    float4 v = x[threadIdx.x];
    v.x *= FACTOR;
    y[threadIdx.x] = v;
}
"""


@pytest.fixture
def facts(tmp_path: Path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/scale.cu").write_text(KERNEL)
    (tmp_path / "kernels/factor.cuh").write_text("#define FACTOR 2.0f\n")

    def run(*args: str, start: Sequence[str] = (), file: str = "kernels/scale.cu") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*(start or forked()), "facts", file, "--arch", "sm_80,sm_90", *args],
            env=os.environ
            | {
                "KERNEL_LSP_PATHS_CACHE": str(tmp_path / "cache"),
                "CUDA_VISIBLE_DEVICES": "",
                "COLUMNS": "100",
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )

    return run


def test_an_unchanged_file_is_shown_again_without_a_worker(facts, tmp_path: Path) -> None:
    first = facts()
    assert first.returncode == 0, first.stderr
    again = facts(start=WITHOUT_WORKERS)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    (tmp_path / "kernels/factor.cuh").write_text("#define FACTOR 3.0f\n")
    changed = facts(start=WITHOUT_WORKERS)
    assert changed.returncode != 0  # the header counts, so it had to be built


@pytest.mark.skipif(not list(find_tools("nvdisasm")), reason="needs nvdisasm")
def test_machine_code_stands_under_its_source_line(facts) -> None:
    answer = facts("--sass")
    assert answer.returncode == 0, answer.stderr
    shown = answer.stdout.splitlines()
    assert [line for line in shown if re.match(r"scale  sm_(80|90): \d+ instructions, most registers live: \d+", line)]
    line = ""
    under: dict[str, str] = {}
    for text in shown:
        if found := re.match(r"\s+(\d+) \| ", text):
            line = found[1]
        elif found := re.search(r"\b(LDG|STG)\.E\.128 ", text):
            under[found[1]] = line
    assert under == {"LDG": "4", "STG": "6"}
    assert "\x1b" not in answer.stdout


@pytest.mark.skipif(not list(find_tools("nvdisasm")), reason="needs nvdisasm")
def test_machine_code_as_json(facts) -> None:
    said = json.loads(facts("--sass", "--json").stdout)
    assert [one["arch"] for one in said["facts"]] == ["sm_80", "sm_90"]
    for code in said["machine_code"]:
        lines = {one["line"]: one["kinds"] for one in code["lines"]}
        assert lines[4]["LDG.128"] == lines[6]["STG.128"] == 1
        assert code["peak"]["live"] == max(one["live"] for one in code["instructions"])
        assert code["loops"] == []


COMPUTED = """import torch
from torch.utils.cpp_extension import load_inline

FACTOR = 3.0
CUDA = f"__global__ void triple(float* x) {{ x[threadIdx.x] *= {FACTOR}f; }}"
op = load_inline(name="triple", cpp_sources="", cuda_sources=CUDA)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
"""


def test_computed_text_is_not_run_for_facts_and_that_is_said(facts, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(COMPUTED)
    answer = facts(file="net.py")
    assert answer.returncode == 2
    assert "Its CUDA text is computed" in " ".join(answer.stderr.split())


def test_several_workloads_are_shown_together(facts, tmp_path: Path) -> None:
    (tmp_path / "kernels/two.cu").write_text(
        "template <int N> __global__ void k(float* x) { x[threadIdx.x] *= N; }\n"
        "__global__ void other(float* x) { x[threadIdx.x] += 1.0f; }\n"
    )
    for name, kernel, threads in (("first", "k<2>", 64), ("second", "k<3>", 128)):
        (tmp_path / f"kernels/{name}_workload.py").write_text(
            'import torch\nKERNEL = "two.cu"\nCASES = [{}]\n'
            'def inputs():\n    return torch.ones(256, device="cuda")\n'
            "def reference(x):\n    return x\n"
            f'def launch(module, x):\n    module["{kernel}"][1, {threads}](x)\n    return x\n'
        )
    said = json.loads(facts("--json", file="kernels/two.cu").stdout)
    for one in said:
        assert {kernel["name"]: kernel["threads"] for kernel in one["kernels"]} == {"k<2>": 64, "k<3>": 128}


def test_a_guessed_include_folder_is_named(facts, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "include").mkdir()
    (tmp_path / "kernels/factor.cuh").rename(tmp_path / "include/factor.cuh")
    said = facts()
    assert said.returncode == 0, said.stderr
    assert f"include folders guessed (`build.include_dirs` names them): {tmp_path / 'include'}" in said.stdout
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-lsp.build]\ninclude_dirs = ["include"]\n')
    named = facts()
    assert (named.returncode, "guessed" in named.stdout) == (0, False), named.stderr


def test_kernels_that_an_error_leaves_without_facts_are_named(facts, tmp_path: Path) -> None:
    (tmp_path / "kernels/lacks.cu").write_text(
        "#include <nowhere.h>\n__global__ void first(Nowhere x) {}\n__global__ void second(Nowhere x) {}\n"
    )
    answer = facts(file="kernels/lacks.cu")
    assert answer.returncode == 1
    assert "not compiled for the errors above: first, second" in answer.stdout


def test_macros_are_taken_from_build_files_above_a_part_of_a_project(facts, tmp_path: Path) -> None:
    """Workers may read them, which lie outside of the part."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "Makefile").write_text("all:\n\tnvcc -DFACTOR=4 kernels/k.cu\n")
    (tmp_path / "kernels/pyproject.toml").touch()
    (tmp_path / "kernels/k.cu").write_text("__global__ void k(int* x) { *x *= FACTOR; }\n")
    answer = facts(file="kernels/k.cu")
    assert answer.returncode == 0, answer.stderr
    assert "warning: compiled with `-DFACTOR=4` (of Makefile, line 2)" in answer.stderr
