"""A kernel is emulated as on the oldest architecture it compiles for; what only a GPU can run is said to need one."""

from pathlib import Path

import pytest
from emulated import check_files

pytest.importorskip("torch")
pytest.importorskip("triton")

WORKLOAD = """
import torch

CASES = [dict(n=64)]


def inputs(n):
    return (torch.randn(n, n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.twice[x.shape[0], x.shape[1]](x, y)
    return y
"""
TWICE = """
extern "C" __global__ void twice(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    LINE
    y[i] = 2 * x[i];
}
"""
EIGHT_BITS = """
import torch
import triton
import triton.language as tl

CASES = [dict(n=64)]


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    places = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.load(a_ptr + places).to(tl.float8e4nv), tl.load(b_ptr + places).to(tl.float8e4nv)
    tl.store(c_ptr + places, tl.dot(a, b))


def inputs(n):
    return torch.randint(-3, 4, (n, n), device="cuda").float(), torch.randint(-3, 4, (n, n), device="cuda").float()


def reference(a, b):
    return a @ b


def launch(module, a, b):
    c = torch.empty_like(a)
    module.product_kernel[(1,)](a, b, c, N=a.shape[0])
    return c
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def run(name: str, text: str, workload: str | None = None):
        path = Path(tmp_path / name)
        path.write_text(text)
        if workload:
            path.with_name(f"{path.stem}_workload.py").write_text(workload)
        return check_files(path)[path]

    return run


@pytest.mark.parametrize("least", [750, 890, 900])
def test_a_kernel_that_wants_a_newer_gpu_is_emulated_as_on_that(check, least: int):
    line = f"\n#if __CUDA_ARCH__ < {least}\n#error too old\n#endif\n"
    report = check("twice.cu", TWICE.replace("LINE", line), WORKLOAD)
    assert report.ok, report.diagnostics
    assert report.emulation.needs_gpu is None
    assert report.emulation.runs[0].totals[0].launches == 1


def test_eight_bit_floats_of_triton_are_emulated_as_on_the_first_gpu_that_has_them(check):
    report = check("product.py", EIGHT_BITS)
    assert report.ok, report.diagnostics
    assert report.emulation.needs_gpu is None
    assert "mma" in report.emulation.runs[0].totals[0].opcodes


def test_what_only_a_gpu_can_run_is_named_with_its_line_and_is_no_error(check):
    line = 'asm volatile("multimem.red.release.gpu.global.add.u32 [%0], 1;" :: "l"(y));'
    report = check("twice.cu", TWICE.replace("LINE", line), WORKLOAD)
    assert report.ok, report.diagnostics
    why = report.emulation.needs_gpu
    assert "multimem.red" in why.reason
    assert (Path(why.path), why.line) == (report.path, 4)
    assert [check.name for check in report.checks] == ["workload", "run"]
