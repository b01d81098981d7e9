import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten, unaligned

from kernel_lsp.refine.rewrites.accesses.cache_row import rewrite

LAYERNORM = """
__device__ float block_sum(float v, float* scratch) {
    scratch[threadIdx.x] = v;
    __syncthreads();
    float sum = 0.0f;
    for (int t = 0; t < blockDim.x; ++t) sum += scratch[t];
    __syncthreads();
    return sum;
}

__global__ void layernorm(const float* x, const float* weight, const float* bias, float* y, int cols, float eps) {
    __shared__ float scratch[1024];
    const float* row = x + (size_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        sum += row[c];
    }
    float mean = block_sum(sum, scratch) / cols;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float d = row[c] - mean;
        squares += d * d;
    }
    float scale = rsqrtf(block_sum(squares, scratch) / cols + eps);
    float* out = y + (size_t)blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        out[c] = (row[c] - mean) * scale * weight[c] + bias[c];
    }
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Callable[..., None]]:
    @cache
    def runner(which: int) -> Callable[..., None]:
        folder: Path = tmp_path_factory.mktemp("host")
        return host_runner(folder, rewritten(rewrite, LAYERNORM)[which].kernel.text)

    return runner


def test_the_row_is_loaded_once() -> None:
    candidates = rewritten(rewrite, LAYERNORM)
    assert [c.label for c in candidates] == [
        f"128-bit loads, {n} vectors of the row in registers" for n in (2, 4, 8, 16)
    ]
    for candidate in candidates:
        assert len(re.findall(r"kept\[c_step\] =", candidate.kernel.text)) == 1
        assert len(re.findall(r"= kept\[c_step\]", candidate.kernel.text)) == 2
    assert ".local" not in ptx(candidates[1].kernel.text)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("cols", [1, 127, 256, 258, 2050])
@pytest.mark.parametrize("which", [0, 2])
def test_rows_of_any_length(run: Callable[[int], Callable[..., None]], which: int, cols: int, offset: int) -> None:
    rng = np.random.default_rng(cols)
    x = unaligned(rng.standard_normal((3, cols)).astype(np.float32), offset)
    weight, bias = rng.standard_normal((2, cols)).astype(np.float32)
    y = unaligned(np.full_like(x, np.nan), 0)
    run(which)(3, 32, x, weight, bias, y, cols, 1e-5)
    centred = x - x.mean(1, keepdims=True)
    expected = centred / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        ("out[c] = (row[c] - mean)", "out[c] = (bias[c] - mean)"),  # read in two loops only, see below
        ("out[c] =", "x[c] ="),
    ],
)
def test_only_rows_that_nobody_writes_are_kept(change: tuple[str, str]) -> None:
    source = LAYERNORM.replace("const float* x,", "float* x,").replace(*change)
    ptx(source)
    assert bool(rewritten(rewrite, source)) == ("bias" in change[1])


def test_one_pass_keeps_nothing() -> None:
    loop = "for (int c = threadIdx.x; c < n; c += blockDim.x) y[c] = x[c];"
    assert rewritten(rewrite, f"__global__ void f(const float* x, float* y, int n) {{ {loop} }}") == []
