from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.multi_element import rewrite

SWIGLU = """
__global__ void swiglu(const float* __restrict__ gate, const float* __restrict__ up, float* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float g = gate[i];
        y[i] = g / (1.0f + __expf(-g)) * up[i];
    }
}
"""
WORKLOAD = """
def launch(module, gate, up):
    y = torch.empty_like(gate)
    module.swiglu[((gate.numel() + 255) // 256,), (256,)](gate, up, y, gate.numel())
    return y
"""
ROW_SUM = """
__global__ void row_sum(const float* x, float* sums, int cols) {
    const float* row = x + (size_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += row[c];
    atomicAdd(&sums[blockIdx.x], sum);
}
"""


def test_more_loads_and_fewer_blocks() -> None:
    for count, candidate in zip((2, 4, 8), rewritten(rewrite, SWIGLU, WORKLOAD), strict=True):
        assert ptx(candidate.kernel.text).count("ld.global") >= 2 * count + 2
        assert candidate.launch is not None
        assert f"swiglu[(-(-((gate.numel() + 255) // 256) // {count}),), (256,)]" in candidate.launch.text


def test_a_launcher_of_another_kernel_has_a_grid_of_its_own() -> None:
    launchers = """
void swiglu1(const float* gate, const float* up, float* y, int n) {
    const int grid = (n + 255) / 256;
    swiglu<<<grid, 256>>>(gate, up, y, n);
}
void other(const float* gate, const float* up, float* y, int n) {
    const int grid = n;
    another<<<grid, 256>>>(gate, up, y, n);
}
"""
    first, *_ = rewritten(rewrite, SWIGLU + launchers)
    assert "const int grid = (((n + 255) / 256) + 1) / 2;" in first.kernel.text
    assert "const int grid = n;" in first.kernel.text


@pytest.mark.parametrize("n", [1, 64, 129, 1000])
def test_every_element_once(tmp_path: Path, n: int) -> None:
    gate, up = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
    y = np.full(n, np.nan, np.float32)
    host_runner(tmp_path, rewritten(rewrite, SWIGLU, WORKLOAD)[1].kernel.text)(2, 32, gate, up, y, n)
    np.testing.assert_allclose(y, gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cols", [1, 100, 1027])
def test_row_loops(tmp_path: Path, cols: int) -> None:
    x = np.random.default_rng(cols).standard_normal((3, cols)).astype(np.float32)
    sums = np.zeros(3, np.float32)
    host_runner(tmp_path, rewritten(rewrite, ROW_SUM)[2].kernel.text)(3, 32, x, sums, cols)
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "body",
    [
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i];",  # no launch that could shrink
        "for (int i = threadIdx.x; i < n; i += blockDim.x) { y[i] = x[i]; __syncthreads(); }",
        "for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = 1.0f;",
        "for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] *= y[i + 1];",
    ],
)
def test_near_misses_are_left_alone(body: str) -> None:
    assert rewritten(rewrite, f"__global__ void f(const float* x, float* y, int n) {{ {body} }}") == []
