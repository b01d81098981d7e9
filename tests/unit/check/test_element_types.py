"""A wrong answer whose cause is a tensor of another element type than the kernel's pointer declares."""

import asyncio
from pathlib import Path

import pytest

from kernel_lsp.check import check
from kernel_lsp.check.element_types import unlike_elements
from kernel_lsp.compiler.builds.plan import Launch, LaunchTrace
from kernel_lsp.config.settings import Settings
from kernel_lsp.source.files import find_kernels, read_source

KERNEL = """__global__ void take(const float* x, const int* index, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[index[i]];
}
"""
WORKLOAD = """import torch
CASES = [dict(n=100)]
def inputs(n):
    return torch.randn(n, device="cuda"), torch.randint(n, (n,), device="cuda")
def reference(x, index):
    return x[index]
def launch(module, x, index):
    y = torch.empty_like(x)
    module.take[1, 128](x, index, y, x.numel())
    return y
"""
WORDS = """__global__ void words(const int* x, int* y, int n) {
    for (int i = threadIdx.x; i < 2 * n; i += blockDim.x) y[i] = x[i];
}
"""
OF_WORDS = """import torch
CASES = [dict(n=100)]
CONTRACT = dict(contiguous=True)
def inputs(n):
    return (torch.randn(n, device="cuda", dtype=torch.float64),)
def reference(x):
    return x.clone()
def launch(module, x):
    y = torch.empty_like(x)
    module.words[1, 128](x, y, x.numel())
    return y
"""


def errors(folder: Path, kernel: str, workload: str) -> list[str]:
    file = folder / "kernel.cu"
    file.write_text(kernel)
    (folder / "kernel_workload.py").write_text(workload)
    [report] = asyncio.run(check([read_source(file)], Settings()))
    return [one.message for one in report.diagnostics if one.severity == "error"]


def test_torchs_own_indices_for_a_pointer_to_int_are_named_before_the_wrong_answer(tmp_path: Path) -> None:
    why, wrong = errors(tmp_path, KERNEL, WORKLOAD)
    said = "`take` gets a tensor of int64 for `index`, which it declares as `const int*`"
    assert why == f"{said}: each element is read as what it is not"
    assert "output 0 is wrong" in wrong


def test_the_type_that_is_declared_is_right(tmp_path: Path) -> None:
    workload = WORKLOAD.replace("(n,), ", "(n,), dtype=torch.int32, ")
    assert errors(tmp_path, KERNEL, workload) == []


def test_a_kernel_that_copies_words_of_whatever_is_there_is_right(tmp_path: Path) -> None:
    assert errors(tmp_path, WORDS, OF_WORDS) == []


@pytest.mark.parametrize(
    ("declared", "given", "told"),
    [
        ("const float* __restrict__", "float64", True),
        ("const float *", "float16", True),
        ("std::int32_t const*", "int64", True),
        ("const unsigned int*", "int32", False),
        ("const float*", "float32", False),
        ("const float4*", "float16", False),
        ("const T*", "float64", False),
        ("const void*", "float64", False),
        ("float**", "int64", False),
        ("size_t", "float64", False),
    ],
)
def test_pointers_to_numbers_alone_tell_what_they_read(declared: str, given: str, told: bool) -> None:
    kernels = find_kernels(f"__global__ void k({declared} x) {{}}\n", Path("k.cu"))
    plan = LaunchTrace(0, (Launch("k", (1, 1, 1), (32, 1, 1), tensors=(given,)),) * 2)
    assert len(list(unlike_elements(kernels, (plan, plan)))) == told
