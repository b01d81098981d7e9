"""Drafts of workloads: complete by their form, refused until somebody has agreed to them."""

import asyncio
from pathlib import Path

import pytest

from kernel_lsp.check import check
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, read_source
from kernel_lsp.workload.draft import draft_workload
from kernel_lsp.workload.spec import DRAFT, find_workload, workload_path

EXAMPLES = Path(__file__).parents[3] / "examples"
KERNEL_FILES = sorted(
    path
    for pattern in ("cuda/*.cu", "triton/*.py")
    for path in EXAMPLES.glob(pattern)
    if not path.name.endswith("_workload.py")
)


def draft(text: str, name: str = "kernel.cu") -> str:
    path = Path(name)
    return draft_workload(SourceFile(path, text), find_kernels(text, path)[0])


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.name)
def test_a_draft_is_refused_until_its_mark_is_removed(path, tmp_path):
    # Only CASES, inputs and reference decide what is a workload in the file itself, so the kernel file goes without.
    source = read_source(path)
    text = draft_workload(source, find_kernels(source.text, path)[0])
    here = tmp_path / path.name
    here.write_text(source.text.split("\nCASES =")[0])
    workload_path(here).write_text(text)
    with pytest.raises(WorkloadError, match="draft") as refused:
        find_workload(read_source(here))
    assert refused.value.line == 1
    assert "remove this line" in refused.value.cure
    workload_path(here).write_text(text.partition("\n")[2])
    found = find_workload(read_source(here))
    assert found is not None
    assert found.has_launch or path.suffix == ".py"


def test_a_signature_tells_types_sizes_and_what_is_written():
    text = draft("__global__ void k(const half* __restrict__ x, float* out, int rows, int cols, float eps) {}")
    assert 'x = torch.randn(rows, cols, device="cuda", dtype=torch.float16)' in text
    assert 'out = torch.empty(rows, cols, device="cuda", dtype=torch.float32)' in text
    assert "return x, 1e-6" in text
    assert "module.k[(rows,), (256,)](x, out, rows, cols, eps)" in text


def test_a_name_that_is_not_known_gives_a_reference_that_raises():
    assert "raise NotImplementedError" in draft("__global__ void frobnicate(const float* x, float* y, int n) {}")
    assert "return torch.relu(x)" in draft("__global__ void relu_kernel(const float* x, float* y, int n) {}")


def test_the_matrices_of_a_product_fit_each_other():
    text = draft("__global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {}")
    assert "a = torch.randn(m, k," in text
    assert "b = torch.randn(k, n," in text
    assert "c = torch.empty(m, n," in text


def test_names_that_python_reserves_are_changed():
    text = draft("__global__ void copy(const float* in, float* out, int n) {}")
    assert "def reference(in_):" in text


@pytest.mark.parametrize("name", ["softmax", "rmsnorm"])
def test_an_agreed_draft_of_a_well_known_kernel_is_right_as_it_stands(name, tmp_path):
    kernel = EXAMPLES / "triton" / f"{name}.py"
    source = read_source(kernel)
    here = tmp_path / kernel.name
    here.write_text(source.text.split("\nCASES =")[0])
    draft_text = draft_workload(read_source(here), find_kernels(source.text, here)[0])
    assert draft_text.startswith(DRAFT)
    workload_path(here).write_text(draft_text.partition("\n")[2])
    settings = Settings.model_validate({"paths": {"data": tmp_path, "cache": tmp_path / "cache"}})
    [report] = asyncio.run(check([read_source(here)], settings))
    assert report.ok, [d.message for d in report.diagnostics]
    assert any(c.status == "passed" for c in report.checks)
