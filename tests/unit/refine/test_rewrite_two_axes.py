"""Kernels of a flat launch whose number is divided into row and column."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import checked, host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.two_axes import rewrite

ROWS, COLUMNS = 11, 7
GATE = """
__global__ void gate(const float* x, float* y, const float* gain, int n, int width) {
    const int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= n * width) return;
    const int row = idx / width;
    const int col = idx % width;
    y[idx] = x[row * width + col] * gain[col] + row;
}
"""
LAUNCH = "def launch(module, x, y, g, n, w):\n    module.gate[-(-n * w // 256), 256](x, y, g, n, w)\n"
PRODUCT = """
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
    int idx = threadIdx.x + blockDim.x * blockIdx.x;
    if (idx < M * N) {
        int row = idx / N, unused = 0;
        int col = idx % N;
        float sum = 0.0f;
        for (int k = 0; k < K; k++) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}
""".replace(", unused = 0", "")
PRODUCT_LAUNCH = "def launch(module, a, b, c, m, n, k):\n    module.product[-(-m * n // 256), 256](a, b, c, m, n, k)\n"


def test_the_hardware_counts_rows_and_columns(tmp_path: Path) -> None:
    (found,) = rewritten(rewrite, GATE, LAUNCH)
    ptx(found.kernel.text)
    assert found.launch
    assert "[(-(-w // 32), -(-n // 8)), (32, 8)]" in found.launch.text
    assert "/" not in found.kernel.text
    assert "if (row >= n || col >= width) return;" in found.kernel.text
    draw = np.random.default_rng(4)
    x, gain = draw.standard_normal((ROWS, COLUMNS)).astype(np.float32), draw.standard_normal(COLUMNS).astype(np.float32)
    y = np.zeros_like(x)
    host_runner(tmp_path, found.kernel.text)((1, 2), (8, 8), x, y, gain, ROWS, COLUMNS)
    np.testing.assert_allclose(y, x * gain + np.arange(ROWS)[:, None], rtol=1e-6)


def test_a_product_gets_its_tiles_in_the_same_step() -> None:
    *tiled, plain = rewritten(rewrite, PRODUCT, PRODUCT_LAUNCH)
    assert plain.label == "rows and columns on two axes"
    assert tiled[-1].label == "rows and columns on two axes, tiles of 16 x 16 in shared memory"
    assert "idx" not in plain.kernel.text
    for one in (tiled[0], tiled[-1]):
        ptx(one.kernel.text)


def test_a_transposed_copy_goes_through_a_tile_in_the_same_step() -> None:
    text = GATE.replace("y[idx] = x[row * width + col] * gain[col] + row", "y[col * n + row] = x[row * width + col]")
    first, _ = rewritten(rewrite, text, LAUNCH)
    assert first.label == "rows and columns on two axes, tiles of 32 x 32 through shared memory"
    ptx(first.kernel.text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("idx % width", "idx % n"),
        ("idx >= n * width", "idx >= n"),
        ("idx >= n * width", "idx > n * width"),
        ("idx / width", "idx / width / 2"),
        ("int row = idx / width;", "int row = idx / width % 4;"),
        ("return;", "return; int w = x[0];|idx / w|idx % w"),
        ("y[idx] =", "__shared__ float s; y[idx] ="),
        ("y[idx] =", "y[threadIdx.x] ="),
    ],
)
def test_other_kernels_are_left_alone(old: str, new: str) -> None:
    assert old in GATE
    new, *others = new.split("|")
    text = GATE.replace(old, new)
    for other in others:
        text = text.replace(other.replace("w", "width"), other)
    ptx(text)
    assert rewritten(rewrite, text, LAUNCH) == []


def test_a_number_that_is_used_ahead_of_its_parts_and_a_declaration_of_more_stay_right(tmp_path: Path) -> None:
    text = GATE.replace("const int row", "y[idx] = 1; const int row").replace("/ width;", "/ width, twice = 2 * row;")
    text = text.replace("y[idx] = x", "y[idx] += twice + x")
    (found,) = rewritten(rewrite, text, LAUNCH)
    x, gain = np.ones((ROWS, COLUMNS), np.float32), np.ones(COLUMNS, np.float32)
    y = np.zeros_like(x)
    host_runner(tmp_path, found.kernel.text)((1, 2), (8, 8), x, y, gain, ROWS, COLUMNS)
    np.testing.assert_allclose(y, 2 + 3 * np.repeat(np.arange(ROWS)[:, None], COLUMNS, axis=1))


def test_a_width_that_has_its_name_behind_the_guard_is_named_ahead() -> None:
    text = (
        GATE.replace("return;", "return;\n    int w = width;")
        .replace("idx / width", "idx / w")
        .replace("% width", "% w")
    )
    (found,) = rewritten(rewrite, text, LAUNCH)
    ptx(found.kernel.text)
    assert "col >= width" in found.kernel.text


def test_a_launch_with_axes_already_is_left_alone() -> None:
    assert rewritten(rewrite, GATE, LAUNCH.replace("[-(-n * w // 256), 256]", "[(n, 2), 256]")) == []


SCORES = """
__global__ void scores(const float* q, const float* k, float* s, int B, int H, int T, int D) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < B * H * T * T) {
        int j = idx % T;
        int i = (idx / T) % T;
        int h = idx / (T * T) % H;
        int b = idx / (H * T * T);
        const float* mine = q + (b * H + h) * T * D + i * D;
        const float* other = k + (b * H + h) * T * D + j * D;
        float sum = 0.0f;
        for (int d = 0; d < D; d++) {
            sum += mine[d] * other[d];
        }
        s[idx] = sum;
    }
}
"""
SCORES_WORKLOAD = """
import torch

CASES = [dict(B=2, H=3, T=37, D=19)]


def inputs(B, H, T, D):
    return torch.randn(B, H, T, D, device="cuda"), torch.randn(B, H, T, D, device="cuda")


def reference(q, k):
    return q @ k.transpose(-1, -2)


def launch(module, q, k):
    B, H, T, D = q.shape
    s = torch.empty(B, H, T, T, device="cuda")
    module.scores[-(-(B * H * T * T) // 256), 256](q, k, s, B, H, T, D)
    return s
"""
POOL = """
__global__ void pool(const float* x, float* y, int planes, int height, int width) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= planes * height * width) return;
    int j = n % width, rest = n / width;
    int i = rest % height, plane = rest / height;
    const float* top = x + (plane * 2 * height + 2 * i) * 2 * width + 2 * j;
    y[n] = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2 * width], top[2 * width + 1]));
}
"""
POOL_WORKLOAD = """
import torch

CASES = [dict(planes=3, height=11, width=5)]


def inputs(planes, height, width):
    return torch.randn(planes, 2 * height, 2 * width, device="cuda")


def reference(x):
    return torch.nn.functional.max_pool2d(x, 2)


def launch(module, x):
    planes, height, width = x.shape[0], x.shape[1] // 2, x.shape[2] // 2
    y = torch.empty(planes, height, width, device="cuda")
    module.pool[-(-(planes * height * width) // 128), 128](x, y, planes, height, width)
    return y
"""


def test_the_matrices_of_a_batch_are_counted_by_the_third_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    *tiled, plain = rewritten(rewrite, SCORES, SCORES_WORKLOAD)
    (pool,) = rewritten(rewrite, POOL, POOL_WORKLOAD)
    assert "int h = blockIdx.z % H;" in plain.kernel.text
    assert "int b = blockIdx.z / H;" in plain.kernel.text
    assert "/" not in pool.kernel.text
    assert "rest" not in pool.kernel.text
    assert pool.launch
    assert "[(-(-width // 32), -(-height // 8), planes), (32, 8)]" in pool.launch.text
    found = {"plain": plain, "pool": pool, "tiled": tiled[-1], "registers": tiled[0]}
    files = {name: (one.kernel.text, one.launch.text if one.launch else "") for name, one in found.items()}
    for name, report in checked(tmp_path, files).items():
        assert report.ok, (name, report.diagnostics)
        assert report.emulation is not None
        assert report.emulation.runs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("idx < B * H * T * T", "idx < B * H * T"),
        ("idx < B * H * T * T", "idx < D"),
        ("(idx / T) % T", "(idx / T) % D"),
        ("idx / (T * T) % H", "idx / (T * D) % H"),
        ("idx / (T * T) % H", "idx % (T * T)"),
        ("idx / (T * T) % H", "idx / (T * T) % threadIdx.x"),
        ("idx / (H * T * T)", "idx / (H * T * T + 1)"),
    ],
)
def test_batches_that_are_counted_in_another_way_are_left_alone(old: str, new: str) -> None:
    assert old in SCORES
    text = SCORES.replace(old, new)
    ptx(text)
    assert rewritten(rewrite, text, SCORES_WORKLOAD) == []
