"""Naive products of half precision, in the ways that people write them."""

from pathlib import Path

import pytest
from rewrite_support import checked, ptx, rewritten

from kernel_lsp.refine.rewrites.products import warpgroup_products
from kernel_lsp.refine.rewrites.products.tensor_product import rewrite
from kernel_lsp.source.candidate import Candidate

_WORKLOAD = """
import torch

CASES = [dict(m=21, n=18, k=35), dict(m=16, n=24, k=40)]
CONTRACT = dict(contiguous=True)
TOLERANCE = dict(atol=2e-2, rtol=2e-2)


def inputs(m, n, k):
    draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.{kind})
    return {inputs}


def reference(a, b, bias):
    return {right}


def launch(module, a, b, bias):
    {sizes}
    out = torch.empty(m, n, device=a.device, dtype=torch.{result})
    module.product[(-(-n // 16), -(-m // 16)), (16, 16)](a, b, bias, out, m, n, k)
    return out
"""

# As in a first course, in float.
COURSE = """
#include <cuda_fp16.h>
__global__ void product(const half* A, const half* B, const half* bias, half* C, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; k++) {
            sum += __half2float(A[row * K + k]) * __half2float(B[k * N + col]);
        }
        C[row * N + col] = __float2half(sum);
    }
}
"""
COURSE_WORKLOAD = _WORKLOAD.format(
    kind="float16",
    inputs="draw(m, k), draw(k, n), draw(n)",
    right="(a.float() @ b.float()).half()",
    sizes="(m, k), n = a.shape, b.shape[1]",
    result="float16",
)
# Summed up in half precision, by intrinsics.
HALVES = COURSE.replace("float sum = 0.0f;", "half sum = 0.0f;").replace(
    "sum += __half2float(A[row * K + k]) * __half2float(B[k * N + col]);",
    "sum = __hadd(sum, __hmul(A[row * K + k], B[k * N + col]));",
)
HALVES = HALVES.replace("__float2half(sum)", "sum")
# A linear layer in bfloat16: an early return, weights by rows, a bias to begin with, an activation at the end.
LINEAR = """
#include <cuda_bf16.h>
extern "C" __global__ void product(const __nv_bfloat16* x, const __nv_bfloat16* weight, const __nv_bfloat16* bias,
                                   float* out, int rows, int outputs, int width) {
    const int r = blockIdx.y * 16 + threadIdx.y, o = blockIdx.x * 16 + threadIdx.x;
    if (r >= rows || o >= outputs) return;
    const __nv_bfloat16* from = x + (size_t)r * width;
    float value = __bfloat162float(bias[o]);
    for (int i = 0; i < width; ++i) {
        const float w = static_cast<float>(weight[(size_t)o * width + i]);
        value = fmaf(__bfloat162float(from[i]), w, value);
    }
    // No negative ones.
    out[(size_t)r * outputs + o] = fmaxf(value, 0.0f);
}
"""
LINEAR_WORKLOAD = _WORKLOAD.format(
    kind="bfloat16",
    inputs="draw(m, k), draw(n, k), draw(n)",
    right="(a.float() @ b.float().T + bias.float()).relu()",
    sizes="(m, k), n = a.shape, b.shape[0]",
    result="float32",
)
# The first operand by its columns; names of the file's own.
TURNED = "#define multiply 3\n" + COURSE.replace("A[row * K + k]", "A[k * M + row]").replace("__half2float", "float")
TURNED_WORKLOAD = _WORKLOAD.format(
    kind="float16",
    inputs="draw(k, m), draw(k, n), draw(n)",
    right="(a.float().T @ b.float()).half()",
    sizes="(k, m), n = a.shape, b.shape[1]",
    result="float16",
)
KERNELS = {
    "course": (COURSE, COURSE_WORKLOAD),
    "halves": (HALVES, COURSE_WORKLOAD),
    "linear": (LINEAR, LINEAR_WORKLOAD),
    "turned": (TURNED, TURNED_WORKLOAD),
}


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def files(candidates: list[Candidate]) -> dict[str, tuple[str, str]]:
    return {f"v{at}": (one.kernel.text, one.launch.text) for at, one in enumerate(candidates) if one.launch}


@pytest.mark.parametrize("name", KERNELS)
def test_results_are_right_on_the_emulator_and_nothing_is_found(name: str, tmp_path: Path, no_gpu: None) -> None:
    found = rewritten(rewrite, *KERNELS[name])
    assert [one.label for one in found] == [f"tensor cores, {n} x {n} elements a block" for n in (128, 64)]
    assert all("mma.sync" in ptx(one.kernel.text) for one in found)
    for report in checked(tmp_path, files(found)).values():
        assert report.ok, report.diagnostics
        assert report.emulation is not None
        assert {finding for run in report.emulation.runs for finding in run.findings} == set()
        assert len({run.case for run in report.emulation.runs}) == 2


def test_warpgroups_go_on_from_there(tmp_path: Path, no_gpu: None) -> None:
    first, _ = rewritten(rewrite, COURSE, COURSE_WORKLOAD)
    assert first.launch is not None
    found = rewritten(warpgroup_products.rewrite, first.kernel.text, first.launch.text)
    assert [one.label for one in found] == ["products of tiles by warpgroups (wgmma)"]
    (report,) = checked(tmp_path, files(found)).values()
    assert report.ok, report.diagnostics


def test_what_the_kernel_did_with_its_sum_is_kept() -> None:
    first, _ = rewritten(rewrite, LINEAR, LINEAR_WORKLOAD)
    text = first.kernel.text
    assert "float value = __bfloat162float(bias[o]);" in text
    assert "value += sums[i2][j][e];" in text, "`i` is the kernel's own"
    assert "// No negative ones." in text
    assert "load_turned" not in text, "only functions that are called are defined"
    assert first.launch is not None
    assert "module.product[(-(-n // 128), -(-m // 128)), (256, 1)]" in first.launch.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum += __half2float(A", "sum += 2.0f * __half2float(A"),
        ("sum += __half2float(A", "sum -= __half2float(A"),
        (") * __half2float(B", ") + __half2float(B"),
        ("__half2float(B[k * N + col])", "__half2float(A[row * K + k])"),
        ("__half2float(B[k * N + col])", "fabsf(__half2float(B[k * N + col]))"),
        ("const half* B", "const float* B"),
        ("float sum", "double sum"),
        ("    if (row < M", "    int place = row * N + col;\n    if (row < M"),
        ("    if (row < M", "    __syncthreads();\n    if (row < M"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in COURSE
    text = COURSE.replace(old, new)
    if new.startswith("const float*"):
        text = text.replace("__half2float(B[k * N + col])", "B[k * N + col]")
    if "place" in new:
        text = text.replace("C[row * N + col]", "C[place]")
    ptx(text)
    assert rewritten(rewrite, text, COURSE_WORKLOAD) == []


def test_earlier_gpus_and_unknown_sizes_keep_the_kernel() -> None:
    assert rewritten(rewrite, COURSE, COURSE_WORKLOAD, "T4") == []
    assert rewritten(rewrite, COURSE, COURSE_WORKLOAD.replace("(-(-n // 16), -(-m // 16))", "grid")) != []
    assert rewritten(rewrite, COURSE, COURSE_WORKLOAD.replace("out, m, n, k)", "out, *sizes)")) == []
