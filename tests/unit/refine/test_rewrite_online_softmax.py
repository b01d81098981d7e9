from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.online_softmax import rewrite

SOFTMAX = """
__device__ float block_max(float v, float* scratch) {
    scratch[threadIdx.x] = v;
    __syncthreads();
    for (int t = 0; t < blockDim.x; ++t) v = fmaxf(v, scratch[t]);
    __syncthreads();
    return v;
}

__device__ float block_sum(float v, float* scratch) {
    scratch[threadIdx.x] = v;
    __syncthreads();
    float sum = 0.0f;
    for (int t = 0; t < blockDim.x; ++t) sum += scratch[t];
    __syncthreads();
    return sum;
}

__global__ void softmax(const float* x, float* y, int cols, float lowest) {
    __shared__ float scratch[1024];
    const float* row = x + (size_t)blockIdx.x * cols;
    float top = lowest;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        const float v = row[c];  // in registers
        top = fmaxf(top, v);
    }
    const float peak = block_max(top, scratch);
    float sum = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += expf(row[c] - peak);
    sum = block_sum(sum, scratch);
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[(size_t)blockIdx.x * cols + c] = expf(row[c] - peak) / sum;
}
"""


def test_the_row_is_read_twice_instead_of_three_times() -> None:
    (candidate,) = rewritten(rewrite, SOFTMAX)
    assert SOFTMAX.count("row[c]") == 3
    assert candidate.kernel.text.count("row[c]") == 2
    assert "sum = own_sum * expf(own_top - peak);" in candidate.kernel.text
    ptx(candidate.kernel.text)


def test_masked_scores_and_short_rows(tmp_path: Path) -> None:
    (candidate,) = rewritten(rewrite, SOFTMAX)
    run = host_runner(tmp_path, candidate.kernel.text)
    for cols in (1, 31, 200):
        x = np.random.default_rng(cols).standard_normal((3, cols)).astype(np.float32) * 20
        x[:, 1::2] = -np.inf
        y = np.full_like(x, np.nan)
        run(3, 32, x, y, cols, -np.inf)
        expected = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(y, expected / expected.sum(1, keepdims=True), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("expf(row[c] - peak);", "expf(row[c] - 2.0f * peak);"),
        ("expf(row[c] - peak);", "expf(row[c + 1] - peak);"),
        ("const float peak = block_max(top, scratch);", "const float peak = top;"),
        ("float sum = 0.f;", "float sum = 1e-6f;"),
        ("float sum = 0.f;", "double sum = 0.f;"),
        ("top = fmaxf(top, v);", "top = fmaxf(top, fabsf(v));"),
        ("c += blockDim.x) sum", "c += 2 * blockDim.x) sum"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in SOFTMAX
    source = SOFTMAX.replace(old, new)
    ptx(source)
    assert rewritten(rewrite, source) == []
