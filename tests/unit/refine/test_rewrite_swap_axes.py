"""Kernels whose neighbouring threads touch what lies far apart."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.swap_axes import rewrite

ROWS, COLUMNS = 11, 7

ADD = """
__global__ void add(const float* a, const float* b, float* c, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < cols) {
        c[i * cols + j] = a[i * cols + j] + b[j];
    }
}
"""
ADD_LAUNCH = """
def launch(module, a, b, c, rows, cols):
    block = (16, 8)
    module.add[((rows + 15) // 16, (cols + 7) // 8), block](a, b, c, rows, cols)
    return c
"""
FLAT = """
__global__ void scale(const float* in, float* out, const float* gain, int H, int W) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= H * W) return;
    int col = idx / H;
    int row = idx % H;
    out[row * W + col] = in[row * W + col] * gain[col];
}
"""


def test_two_axes_are_interchanged_with_their_launch(tmp_path: Path) -> None:
    (found,) = rewritten(rewrite, ADD, ADD_LAUNCH)
    ptx(found.kernel.text)
    assert "int j = blockIdx.x * blockDim.x + threadIdx.x;" in found.kernel.text
    assert found.launch
    assert "block = (8, 16)" in found.launch.text
    assert "[((cols + 7) // 8, (rows + 15) // 16), block]" in found.launch.text
    draw = np.random.default_rng(4)
    a, b = draw.standard_normal((ROWS, COLUMNS)).astype(np.float32), draw.standard_normal(COLUMNS).astype(np.float32)
    c = np.zeros_like(a)
    host_runner(tmp_path, found.kernel.text)((2, 3), (4, 4), a, b, c, ROWS, COLUMNS)
    np.testing.assert_array_equal(c, a + b)


def test_a_quotient_and_its_remainder_change_places(tmp_path: Path) -> None:
    (found,) = rewritten(rewrite, FLAT)
    ptx(found.kernel.text)
    assert "int col = idx % W;\n    int row = idx / W;" in found.kernel.text
    draw = np.random.default_rng(5)
    a, b = draw.standard_normal((ROWS, COLUMNS)).astype(np.float32), draw.standard_normal(COLUMNS).astype(np.float32)
    c = np.zeros_like(a)
    host_runner(tmp_path, found.kernel.text)(3, 32, a, c, b, ROWS, COLUMNS)
    np.testing.assert_array_equal(c, a * b)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (ADD, "i * cols + j", "j * rows + i"),  # neighbours are neighbours
        (ADD, "if (i < rows", "if (__ballot_sync(~0u, i) && i < rows"),
        (ADD, "c[i *", "c[threadIdx.x % warpSize] = c[i *"),
        (FLAT, "row * W + col", "col * H + row"),
        (FLAT, "idx >= H * W", "idx >= H * W + 1"),
        (FLAT, "if (idx >= H * W) return;", ""),
        (FLAT, "idx % H", "idx % (H + 1)"),
        (FLAT, "* gain[col]", "* gain[col] + idx"),
    ],
)
def test_near_misses_are_left_alone(text: str, old: str, new: str) -> None:
    assert old in text
    changed = text.replace(old, new)
    ptx(changed)
    assert rewritten(rewrite, changed, ADD_LAUNCH if text is ADD else None) == []


def test_an_unknown_launch_keeps_the_kernel() -> None:
    assert rewritten(rewrite, ADD, ADD_LAUNCH.replace("((rows + 15) // 16, (cols + 7) // 8)", "8")) == []
    assert rewritten(rewrite, ADD) == []


def test_an_element_for_a_whole_row_does_not_outweigh_the_row() -> None:
    text = ADD.replace("a[i * cols + j] + b[j]", "a[i * cols + j] + b[i]").replace(
        "c[i * cols + j] =", "c[i * cols + j] +="
    )
    text = text.replace("= a[i * cols + j] +", "=")
    (found,) = rewritten(rewrite, text, ADD_LAUNCH)
    assert "int j = blockIdx.x * blockDim.x + threadIdx.x;" in found.kernel.text
