"""Copies to the transposed place, whichever axis the threads run along."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.transpose_tile import rewrite
from kernel_lsp.source.candidate import Candidate

ROWS, COLUMNS = 37, 45

BY_ROWS = """
__global__ void transpose(const float* in, float* out, int rows, int cols) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < cols && y < rows) {
        out[x * rows + y] = in[y * cols + x];
    }
}
"""
# Stores touch neighbours, loads do not; an early return; scaled on the way.
BY_COLUMNS = """
__global__ void transpose(const float* in, float* out, int rows, int cols, float scale) {
    const unsigned i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
    if (i >= rows || j >= cols) return;
    out[j * rows + i] = scale * in[i * cols + j] + i;
}
"""
# Values on the way have names, within the test and ahead of it; a last `return`.
STEP_BY_STEP = """
__global__ void transpose(const float* in, float* out, int rows, int cols) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int from = y * cols + x, half = rows / 2;
    if (x < cols && y < rows) {
        int to = x * rows + y;
        float value = in[from] - half;
        out[to] = 2 * value;
    } /* end if */
    return;
}
"""
LAUNCHES = {
    BY_ROWS: "module.transpose[(-(-cols // 16), -(-rows // 16)), (16, 16)](a, b, rows, cols)",
    STEP_BY_STEP: "module.transpose[(-(-cols // 16), -(-rows // 16)), (16, 16)](a, b, rows, cols)",
    BY_COLUMNS: "module.transpose[((rows + 15) // 16, (cols + 15) // 16), (16, 16)](a, b, rows, cols, 2.0)",
}


def candidates(text: str, like: str = "") -> list[Candidate]:
    return rewritten(rewrite, text, f"def launch(module, a, b, rows, cols):\n    {LAUNCHES[like or text]}\n")


def test_tiles_give_the_same_matrix_at_every_border(tmp_path: Path) -> None:
    a = np.random.default_rng(4).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    for text, grid, rest in ((BY_ROWS, (2, 2), ()), (BY_COLUMNS, (2, 2), (2.0,))):
        (one,) = candidates(text)
        ptx(one.kernel.text)
        b = np.full((COLUMNS + 1, ROWS), 7, np.float32)
        host_runner(tmp_path, one.kernel.text)(grid, (32, 2), a, b, ROWS, COLUMNS, *rest)
        right = a.T if text is BY_ROWS else (2 * a + np.arange(ROWS, dtype=np.float32)[:, None]).T
        np.testing.assert_allclose(b[:COLUMNS], right, rtol=1e-6)
        assert (b[COLUMNS] == 7).all()


def test_the_launch_has_a_block_for_each_tile() -> None:
    (one,) = candidates(BY_ROWS)
    assert one.launch
    assert "[(-(-cols // 32), -(-rows // 32)), (32, 8)]" in one.launch.text
    (one,) = candidates(BY_COLUMNS)
    assert one.launch
    assert "[(-(-rows // 32), -(-cols // 32)), (32, 8)]" in one.launch.text
    assert len(one.kernel.text.splitlines()) <= len(BY_COLUMNS.splitlines()) + 12


def test_values_on_the_way_take_the_places_of_their_names(tmp_path: Path) -> None:
    text = STEP_BY_STEP.replace(", half = rows / 2;", ";\n    int half = rows / 2;")
    (one,) = candidates(text, STEP_BY_STEP)
    assert "[y * cols + x]" in one.kernel.text
    assert "int half" in one.kernel.text
    assert "int from" not in one.kernel.text
    ptx(one.kernel.text)
    a = np.random.default_rng(4).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    right, new = np.zeros((COLUMNS, ROWS), np.float32), np.zeros((COLUMNS, ROWS), np.float32)
    host_runner(tmp_path, text)((3, 3), (16, 16), a, right, ROWS, COLUMNS)
    host_runner(tmp_path, one.kernel.text)((2, 2), (32, 2), a, new, ROWS, COLUMNS)
    np.testing.assert_array_equal(new, right)
    assert candidates(STEP_BY_STEP) == []  # a declaration of what stays and what goes


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (BY_ROWS, "out[x * rows + y]", "out[y * cols + x]"),  # neighbours are neighbours
        (BY_ROWS, "in[y * cols + x];", "in[y * cols + x] + in[0];"),
        (BY_ROWS, "in[y * cols + x];", "in[y * cols + x] + threadIdx.x;"),
        (BY_ROWS, "in[y * cols + x];", "out[y * cols + x];"),
        (BY_ROWS, "out[x * rows + y] =", "out[x * rows + y] +="),
        (BY_ROWS, "x < cols && y < rows", "x < cols"),
        (BY_ROWS, "x < cols && y < rows", "x < cols && y < rows - x"),
        (BY_ROWS, "    if (x", "    out[0] = 1.0f;\n    if (x"),
        (BY_COLUMNS, "    if (i", "    int k = threadIdx.x;\n    if (i"),
        (STEP_BY_STEP, ", half = rows / 2;", "; int half = 2 * x; half += 1;"),
        (STEP_BY_STEP, ", half = rows / 2;", "; int half = in[x];"),
        (BY_COLUMNS, "return;", "return;\n    __syncthreads();"),
    ],
)
def test_near_misses_are_left_alone(text: str, old: str, new: str) -> None:
    assert old in text
    assert candidates(text.replace(old, new), text) == []
