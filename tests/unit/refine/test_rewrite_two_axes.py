"""Kernels of a flat launch whose number is divided into row and column."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.two_axes import rewrite

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


def test_a_remark_goes_with_what_it_is_about() -> None:
    (found,) = rewritten(rewrite, GATE.replace("idx / width;", "idx / width;  // of the matrix"), LAUNCH)
    assert "of the matrix" not in found.kernel.text


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
