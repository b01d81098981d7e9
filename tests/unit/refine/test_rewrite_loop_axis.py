"""Threads that compute a row of outputs each, in the ways that people write them."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.loop_axis import rewrite

ROWS, COLUMNS, DEPTH = 37, 21, 9

# A thread for each row of a product.
BY_ROW = """
__global__ void product(const float* a, const float* b, float* c, int n, int m, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) {
        for (int col = 0; col < m; ++col) {
            float sum = 0.0f;
            for (int i = 0; i < k; ++i)
                sum += a[row * k + i] * b[i * m + col];
            c[row * m + col] = sum;
        }
    }
}
"""
# A thread for each column, and variables as C had them.
BY_COLUMN = """
__global__ void product(const float* a, const float* b, float* c, int n, int m, int k) {
    int tid = threadIdx.x;
    int col = blockIdx.x * 64 + tid;  // one column
    int row, i;
    float sum;
    if (col >= m) return;
    #pragma unroll 1
    for (row = 0; row <= n - 1; row++) {
        sum = 0.0f;
        for (i = 0; i < k; i++) sum += a[row * k + i] * b[i * m + col];
        c[row * m + col] = sum;
    }
    return;
}
"""
# A triangle, whose rows are written in a loop of their own.
OUTER = """
__global__ void product(const float* a, const float* b, float* c, int n, int m, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n)
        for (int i = row % 2; i < k; i++)
            for (int j = 0; j < m; j++)
                c[(row * k + i) * m + j] = a[row * k + i] * b[i * m + j];
}
"""
TRANSPOSED = """
__global__ void transpose(const float* a, float* c, int n, int m) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) {
        for (int col = 0; col < m; ++col) c[col * n + row] = a[row * m + col];
    }
}
"""
LAUNCH = "def launch(module, a, b, c, n, m, k):\n    module.product[(GRID + 63) // 64, 64](a, b, c, n, m, k)\n"
BY = {BY_ROW: "n", BY_COLUMN: "m", OUTER: "n"}


def launch(text: str) -> str:
    return LAUNCH.replace("GRID", BY.get(text, "n"))


def arguments(text: str) -> list[np.ndarray | float]:
    draw = np.random.default_rng(2)
    a, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((ROWS, DEPTH), (DEPTH, COLUMNS)))
    shape = (ROWS, DEPTH, COLUMNS) if text == OUTER else (ROWS, COLUMNS)
    return [a, b, np.full(shape, 7, np.float32), ROWS, COLUMNS, DEPTH]


@pytest.mark.parametrize("text", BY, ids=["row", "column", "outer"])
def test_a_thread_for_each_output_does_the_same(tmp_path: Path, text: str) -> None:
    right = arguments(text)
    host_runner(tmp_path, text)(1, 64, *right)
    *_, plain = rewritten(rewrite, text, launch(text))
    assert plain.label == "a thread for each output"
    ptx(plain.kernel.text)
    given = arguments(text)
    host_runner(tmp_path, plain.kernel.text)((8, 8), (8, 8), *given)
    for new, old in zip(given, right, strict=True):
        np.testing.assert_array_equal(new, old)


def test_neighbours_in_memory_lie_along_x() -> None:
    *_, plain = rewritten(rewrite, BY_ROW, launch(BY_ROW))
    assert "int row = blockIdx.y * blockDim.y + threadIdx.y;\n    int col = blockIdx.x" in plain.kernel.text
    assert "    if (row < n && col < m) {\n        float sum = 0.0f;\n        for (int i = 0; i" in plain.kernel.text
    assert plain.launch is not None
    assert "[(-(-m // 32), -(-n // 8)), (32, 8)]" in plain.launch.text
    *_, plain = rewritten(rewrite, BY_COLUMN, launch(BY_COLUMN))
    assert (
        "int col = blockIdx.x * blockDim.x + threadIdx.x;  // one column\n    int row = blockIdx.y" in plain.kernel.text
    )
    assert "if (col >= m || row > n - 1) return;\n    sum = 0.0f;" in plain.kernel.text
    assert "tid" not in plain.kernel.text
    assert "#pragma" not in plain.kernel.text


def test_products_and_transposed_copies_go_through_shared_memory_in_the_same_step() -> None:
    *tiled, plain = rewritten(rewrite, BY_ROW, launch(BY_ROW))
    assert tiled[-1].label == "a thread for each output, tiles of 16 x 16 in shared memory"
    workload = "def launch(module, a, c, n, m):\n    module.transpose[-(-n // 64), 64](a, c, n, m)\n"
    tile, plain = rewritten(rewrite, TRANSPOSED, workload)
    assert tile.label == "a thread for each output, tiles of 32 x 32 through shared memory"
    for one in (tiled[0], tiled[-1], tile, plain):
        ptx(one.kernel.text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float sum = 0.0f;", "float sum = col ? c[row * m + col - 1] : 0.0f;"),  # what another iteration wrote
        ("c[row * m + col] = sum;", "c[row * m + col / 2] = sum;"),
        ("c[row * m + col] = sum;", "c[row * m] += sum;"),
        ("c[row * m + col] = sum;", "c[row * m + col] = sum; if (sum > 4) break;"),
        ("c[row * m + col] = sum;", "if (sum > 4) continue; c[row * m + col] = sum;"),
        ("c[row * m + col] = sum;", "for (int j = 0; j < k; j++) c[row * m + col * m + j] = sum;"),  # rows that meet
        ("for (int col", "float sum = 0; for (int col"),  # a name that is taken
        ("for (int col = 0; col < m", "int end = m - n; for (int col = 0; col < end"),
        ("for (int col = 0; col < m", "for (int col = 0; col < (int)a[0]"),
        ("++col", "col += 2"),
        ("for (int col", "int col = k; for (int col"),
        ("float sum = 0.0f;|for (int col", "|float sum = 0; for (int col"),  # a sum over all outputs
        ("for (int col", "c[row] = 1; for (int col"),
        ("if (row < n)", ""),
        ("int row = blockIdx.x", "int row = blockIdx.y + blockIdx.x"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    text = BY_ROW
    for part, other in zip(old.split("|"), new.split("|"), strict=True):
        assert part in text
        text = text.replace(part, other)
    ptx(text)
    assert rewritten(rewrite, text, launch(BY_ROW)) == []
