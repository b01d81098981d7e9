"""A CUDA file whose host functions the workload calls is judged without a GPU, host code and all."""

import asyncio
import shutil
from pathlib import Path

import pytest

from kernel_lsp.compiler.host.compiler import host_compiler
from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Verdict
from tests.host_header import with_host_header

KERNEL = """#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>

template <typename scalar_t>
__global__ void scale_kernel(const scalar_t* x, scalar_t* y, float a, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = static_cast<scalar_t>(static_cast<float>(x[i]) * a);
}

torch::Tensor scale(torch::Tensor x, double a) {
  const c10::cuda::OptionalCUDAGuard guard(x.device());
  auto in = x.contiguous();
  auto y = torch::empty_like(in);
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "scale", [&] {
    scale_kernel<scalar_t><<<(x.numel() + 255) / 256, 256>>>(
        in.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), a, x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
WORKLOAD = """import torch
CASES = [dict(n=1000)]
def inputs(n): return (torch.randn(n, device="cuda", dtype=torch.float16), 2.5)
def reference(x, a): return x.float() * a
def launch(module, x, a): return module.scale(x, a)
"""


def judge(folder: Path, changes: list[tuple[str, str]]) -> list[Verdict]:
    path = folder / "scale.cu"
    path.write_text(KERNEL)
    (folder / "scale_workload.py").write_text(WORKLOAD)
    with_host_header(folder / "kept/builds")
    settings = Settings(paths=PathSettings(data=folder / "kept", cache=folder / "kept"))
    assert all(old in KERNEL for old, _ in changes)

    async def run() -> list[Verdict]:
        async with open_session(make_target(path), settings) as session:
            texts = [KERNEL.replace(*change) for change in changes]
            return [await session.judge(session.target.version(text, "variant", "user")) for text in texts]

    return asyncio.run(run())


@pytest.mark.skipif(host_compiler() is None or shutil.which("nvidia-smi") is not None, reason="g++, and no GPU")
def test_right_and_wrong_host_code_and_kernels(tmp_path: Path) -> None:
    right, wrong, beyond, refused = judge(
        tmp_path,
        [
            ("* a);", "* (a + 0.0f));"),
            ("(x.numel() + 255) / 256, 256", "1, 256"),
            ("if (i < n) y[i]", "if (i <= n) y[i]"),
            ("auto in =", 'TORCH_CHECK(x.numel() < 10, "too long: ", x.numel()); auto in ='),
        ],
    )
    assert right.verdict is Outcome.UNTIMED, right
    assert wrong.verdict is Outcome.WRONG
    assert beyond.verdict in (Outcome.WRONG, Outcome.RUN_FAILED)
    assert refused.verdict is Outcome.RUN_FAILED
    assert "too long: 1000" in refused.reason
