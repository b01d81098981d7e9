"""The examples in KernelBench's form: each answer has its problem, takes its weights, and its kernels compile."""

import runpy
from pathlib import Path
from unittest import mock

import pytest

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.modules import is_answer, is_problem
from kernel_lsp.workload.spec import require_workload

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[3] / "examples" / "kernelbench"
PROBLEMS = sorted(path for path in EXAMPLES.glob("*.py") if is_problem(path.read_text()))
ANSWERS = sorted(path for path in EXAMPLES.glob("*.py") if is_answer(path.read_text()))
ARCHES = ("sm_80", "sm_90", "sm_120")


def named(path: Path) -> str:
    return path.stem


def test_every_file_is_a_problem_or_an_answer_to_one():
    assert sorted(PROBLEMS + ANSWERS) == sorted(EXAMPLES.glob("*.py"))
    found = [require_workload(SourceFile(path, path.read_text())) for path in ANSWERS]
    assert [workload.source.path for workload in found] == PROBLEMS
    assert all(workload.problem for workload in found)


@pytest.mark.parametrize("path", ANSWERS, ids=named)
def test_an_answer_has_one_kernel_and_is_listed(path):
    text = path.read_text()
    wanted = Language.TRITON if path.stem.endswith("_triton") else Language.TORCH
    assert language_of(path, text) is wanted
    assert len(find_kernels(text, path)) == 1
    assert f"kernelbench/{path.name}" in (EXAMPLES.parent / "README.md").read_text()


@pytest.mark.parametrize("path", ANSWERS, ids=named)
def test_an_answer_has_the_weights_of_its_problem(path):
    if path.stem.endswith("_triton"):
        pytest.importorskip("triton")
    source = require_workload(SourceFile(path, path.read_text())).source
    problem = runpy.run_path(str(source.path))
    with mock.patch("torch.utils.cpp_extension.load_inline"):
        answer = runpy.run_path(str(path))
    arguments = problem["get_init_inputs"]()
    theirs, ours = problem["Model"](*arguments).state_dict(), answer["ModelNew"](*arguments).state_dict()
    assert {name: value.shape for name, value in theirs.items()} == {name: value.shape for name, value in ours.items()}


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("path", [path for path in ANSWERS if path.stem.endswith("_cuda")], ids=named)
def test_inline_kernels_compile_without_a_word(path, arch):
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernel_lsp.compiler.builds.options import BuildOptions
    from kernel_lsp.compiler.cuda.inline import build_inline

    made = build_inline(SourceFile(path, path.read_text()), arch, BuildOptions())
    assert made.build.diagnostics == ()
    assert [kernel.name for kernel in made.build.binary.kernels] == [
        kernel.name for kernel in find_kernels(path.read_text(), path)
    ]
    assert {launch.block for launch in made.launches} == {(256, 1, 1)}
    assert {kernel.spill_store_bytes for kernel in made.build.binary.kernels} == {0}
