"""Host launchers of bare CUDA files: a program's function with `<<<>>>` in it is called with tensors for pointers."""

from pathlib import Path

import pytest

from kernel_lsp.check.checker import check
from kernel_lsp.check.record import FileReport
from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.host import compiler
from kernel_lsp.compiler.host.build import fast_build
from kernel_lsp.compiler.host.request import cuda_file_request
from kernel_lsp.compiler.toolchain.file_cache import FileCache
from kernel_lsp.config.settings import JudgeSettings, PathSettings, Settings
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.host_view import host_view
from tests.host_header import with_host_header

COMMON = """#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>
#include <cublas_v2.h>

template <class T>
__host__ __device__ T ceil_div(T dividend, T divisor) { return (dividend + divisor - 1) / divisor; }

void cuda_check(cudaError_t error, const char* file, int line) {
    if (error != cudaSuccess) { printf("%s:%d: %s", file, line, cudaGetErrorString(error)); exit(EXIT_FAILURE); }
}
#define cudaCheck(error) (cuda_check(error, __FILE__, __LINE__))

void cublasCheck(cublasStatus_t status, const char* file, int line) {
    if (status != CUBLAS_STATUS_SUCCESS) exit(EXIT_FAILURE);
}
#define cublasCheck(status) { cublasCheck((status), __FILE__, __LINE__); }
static cublasHandle_t handle;
"""
PROGRAM = """#include "common.h"

template <int FACTOR>
__global__ void scale(float* out, const float* in, int* counted, int n) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? in[i] : 0;
    if (i < n) { out[i] = FACTOR * tile[threadIdx.x]; atomicAdd(counted, 1); }
}

void scaled(float* out, const float* in, int* counted, int n, int block_size) {
    const int blocks = ceil_div(n, block_size);
    cudaCheck(cudaFuncSetAttribute(scale<3>, cudaFuncAttributeMaxDynamicSharedMemorySize, block_size * 4));
    cudaCheck(cudaMemset(counted, 0, sizeof(int)));
    scale<3><<<blocks, block_size, block_size * sizeof(float)>>>(out, in, counted, n);
    cudaCheck(cudaGetLastError());
}

int main() {
    cublasCheck(cublasCreate(&handle));
    float* memory = (float*)malloc(64);
    free(memory);
    return 0;
}
"""
WORKLOAD = """import torch

CASES = [dict(n=70)]
CONTRACT = dict(contiguous=True)


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return 3 * x, torch.tensor([x.numel()], dtype=torch.int32, device=x.device)


def launch(module, x):
    out, counted = torch.empty_like(x), torch.full((1,), 9, dtype=torch.int32, device=x.device)
    module.scaled({out}, x, counted, x.numel(), 32)
    return out, counted
"""
needs_gcc = pytest.mark.skipif(compiler.host_compiler() is None, reason="no g++")


def test_only_what_is_asked_for_stays_of_a_program() -> None:
    text = PROGRAM.replace('#include "common.h"\n', COMMON)
    view = host_view(text, ["scaled"])
    assert view.count("\n") == text.count("\n")
    for kept in ("ceil_div(T dividend", "void cuda_check", "void scaled"):
        assert kept in view
    for gone in ("main()", "void cublasCheck", "cublasHandle_t", "malloc"):
        assert gone not in view
    assert "main()" in host_view(text)


@pytest.mark.thorough
@needs_gcc
def test_a_header_of_the_users_with_cudas_own_in_it_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "common.h").write_text(COMMON)
    path = tmp_path / "scale.cu"
    request = cuda_file_request(path, PROGRAM, ["scaled"])
    caches = BuildCache(tmp_path / "kept", 1 << 28), FileCache(tmp_path / "kept", 1 << 28, ".host")
    built = fast_build(request, "sm_80", SourceFile(path, PROGRAM), tmp_path / "kept", cache=caches[0])
    assert isinstance(built, ExtensionBuild), built
    assert built.ok
    assert [kernel.name for kernel in built.kernels] == ["scale<3>"]


async def checked(folder: Path, out: str) -> FileReport:
    (folder / "common.h").write_text(COMMON)
    (folder / "scale.cu").write_text(PROGRAM)
    (folder / "scale_workload.py").write_text(WORKLOAD.format(out=out))
    with_host_header(folder / "cache/builds")
    paths = PathSettings(data=folder / "data", cache=folder / "cache")
    settings = Settings(paths=paths, judge=JudgeSettings(families=["normal"]))
    [report] = await check([SourceFile(folder / "scale.cu", PROGRAM)], settings)
    return report


@needs_gcc
@pytest.mark.asyncio
async def test_a_launcher_takes_tensors_for_pointers_and_says_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    report = await checked(tmp_path, "out")
    assert report.ok, report.diagnostics
    assert any(one.name.startswith("inputs") for one in report.checks), report.checks
    wrong = await checked(tmp_path, "out.double()")
    said = " ".join(found.message for found in wrong.diagnostics)
    assert "argument 1 is a tensor of Double, where the function takes a float*" in said
