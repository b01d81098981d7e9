"""Checking CUDA in a Python file, without a GPU: messages and silenced findings in place, problems that changed."""

import asyncio
import shutil
from pathlib import Path

import pytest

from kernel_lsp.check import check, kernel_files_among
from kernel_lsp.config.settings import BuildSettings, PathSettings, Settings
from kernel_lsp.judge.facts import facts_of, open_builder
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from tests.host_header import with_host_header

pytest.importorskip("torch")
pytest.importorskip("cuda.bindings.nvrtc")

EXAMPLES = Path(__file__).parents[3] / "examples" / "kernelbench"
SPILLING = '''
from torch.utils.cpp_extension import load_inline
load_inline("first", "", """
#define N 4
__global__ void one(float* x) { x[threadIdx.x] += N; }
""")
load_inline("second", "", """
#define N 256
__device__ int helper() { return 1; }
__global__ void two(float* x, int i) {  // kernel-lsp: ignore[KL034] indexed on purpose
    float local[N];
    for (int k = 0; k < N; ++k) local[k] = x[k];
    x[helper()] = local[i];
}
void run(float* x) { two<<<1, 64>>>(x, 1); }
""", extra_cuda_cflags=["-O3", "-DUNUSED=1"])
'''


def settings_in(folder: Path) -> Settings:
    return Settings(arch=["sm_90"], build=BuildSettings(), paths=PathSettings(data=folder / "data", cache=folder / "c"))


def report(source: SourceFile, folder: Path, **options):
    return asyncio.run(check([source], settings_in(folder), **options))[0]


def test_facts_of_two_calls_with_their_own_macros(tmp_path):
    async def facts():
        async with open_builder() as build:
            built = await build(SourceFile(tmp_path / "two.py", SPILLING), settings_in(tmp_path))
            return [facts_of(arch, one) for arch, one in built.items()]

    (found,) = asyncio.run(facts())
    assert found.ok
    assert {kernel.name: kernel.threads for kernel in found.kernels} == {"one": None, "two": 64}


def test_a_finding_is_silenced_by_a_comment_in_the_cuda_text(tmp_path):
    source = SourceFile(tmp_path / "two.py", SPILLING)
    found = report(source, tmp_path, run=False)
    assert [(one.finding.code, one.finding.line, one.reason) for one in found.silenced] == [
        ("KL034", 10, "indexed on purpose")
    ]
    assert [d.message for d in found.diagnostics] == ["it has no workload: it was compiled, not run"]


def test_an_error_is_said_at_the_line_of_the_python_file_also_where_it_has_a_problem(tmp_path):
    with_host_header(tmp_path / "c/builds")
    for name in ("mean_square.py", "mean_square_cuda.py"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    path = tmp_path / "mean_square_cuda.py"
    text = path.read_text().replace("partial[0] / cols", "nothing[0] / cols")
    (found,) = report(SourceFile(path, text), tmp_path).diagnostics
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "nothing" in line)
    assert (found.message, found.line) == ('identifier "nothing" is undefined', line)
    assert found.column == text.splitlines()[line - 1].index("nothing") + 1


@pytest.mark.thorough
def test_an_answer_whose_text_is_computed_is_checked_too(tmp_path):
    shutil.copy(EXAMPLES / "mean_square.py", tmp_path / "mean_square.py")
    text = (EXAMPLES / "mean_square_cuda.py").read_text().replace("partial[0] / cols", "nothing[0] / cols")
    path = tmp_path / "mean_square_cuda.py"
    path.write_text(text.replace("[DEVICE, HOST]", "'%s%s' % (DEVICE, HOST)"))
    (source,) = kernel_files_among([path])
    assert find_kernels(source.text, path) == ()
    (found,) = report(source, tmp_path).diagnostics
    line = next(number for number, line in enumerate(source.text.splitlines(), 1) if "nothing" in line)
    assert (found.message, found.line) == ('identifier "nothing" is undefined', line)


def test_a_problem_that_changed_stands_for_its_answers():
    found = kernel_files_among([EXAMPLES / "bias_gelu.py"], related=True)
    assert [file.path.name for file in found] == ["bias_gelu_cuda.py"]
    assert kernel_files_among([EXAMPLES / "bias_gelu.py"]) == ()
