"""Matrices whose rows and columns of threads only number elements."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.one_axis import rewrite
from kernel_lsp.refine.rewrites.reductions import block_atomics, shared_bins

H, W = 21, 37
# A name for the element's number; an early return.
LEVELS = """
__global__ void levels(const float* image, float* bins, int height, int width) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= height || col >= width) return;
    int place = row * width + col;
    int level = static_cast<int>(image[place]);
    atomicAdd(&bins[level], 1.0f);  // a level for each pixel
}
"""
# Rows along x, and indices written out.
EQUAL = """
__global__ void equal(const float* x, const float* y, float* count, int height, int width) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    int c = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < height && c < width) {
        if (x[r * width + c] == y[c + r * width]) atomicAdd(count, 1.0f);
    }
}
"""
LAUNCHES = {
    LEVELS: "def launch(m, x, b, h, w):\n    m.levels[(-(-w // 16), -(-h // 16)), (16, 16)](x, b, h, w)\n",
    EQUAL: "def launch(m, x, y, n, h, w):\n    m.equal[(-(-h // 16), -(-w // 16)), (16, 16)](x, y, n, h, w)\n",
}


def test_one_axis_numbers_the_same_elements(tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(0, 5, (H, W)).astype(np.float32)
    y = np.random.default_rng(2).integers(0, 5, (H, W)).astype(np.float32)
    *_, levels = rewritten(rewrite, LEVELS, LAUNCHES[LEVELS])
    *_, equal = rewritten(rewrite, EQUAL, LAUNCHES[EQUAL])
    bins, count = np.zeros(8, np.float32), np.zeros(1, np.float32)
    for one in (levels, equal):
        ptx(one.kernel.text)
    host_runner(tmp_path, levels.kernel.text)(-(-H * W // 64), 64, x, bins, H, W)
    host_runner(tmp_path, equal.kernel.text)(-(-H * W // 64), 64, x, y, count, H, W)
    np.testing.assert_array_equal(bins, np.bincount(x.ravel().astype(int), minlength=8))
    assert count[0] == (x == y).sum()


def test_the_number_keeps_its_name_and_the_launch_counts_elements() -> None:
    *_, one = rewritten(rewrite, LEVELS, LAUNCHES[LEVELS])
    assert (
        "int place = blockIdx.x * blockDim.x + threadIdx.x;\n    if (place >= height * width) return;\n    int level"
        in one.kernel.text
    )
    assert one.launch is not None
    assert "m.levels[(-(-(h * w) // 256), 1), (256, 1)]" in one.launch.text
    *_, one = rewritten(rewrite, EQUAL, LAUNCHES[EQUAL])
    assert "if (x[i] == y[i])" in one.kernel.text


def test_sums_of_blocks_follow(tmp_path: Path) -> None:
    first = rewritten(shared_bins.rewrite, LEVELS, LAUNCHES[LEVELS])[0]
    assert first.label.startswith("one axis of threads, grid-stride loop")
    assert first.kernel.text.count("// a level for each pixel") == 1
    *_, alone = [c for c in rewritten(block_atomics.rewrite, EQUAL, LAUNCHES[EQUAL]) if "one axis" in c.label]
    ptx(alone.kernel.text)
    x = np.random.default_rng(3).integers(0, 5, (H, W)).astype(np.float32)
    count = np.zeros(1, np.float32)
    host_runner(tmp_path, alone.kernel.text)(-(-H * W // 64), 64, x, x, count, H, W)
    assert count[0] == x.size


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("image[place]", "image[place] + row"),  # a row for itself
        ("row >= height ||", "row >= height || image[row * width + col] < 0 ||"),  # not within the limits yet
        ("|| col >= width", "|| col >= width || row < bins[0]"),
        ("row * width + col;", "row * height + col;"),
        ("row * width + col;", "row * width + col + threadIdx.x;"),
        ("|| col >= width", ""),
        ("int level", "__syncthreads(); int level"),
        ("int row = blockIdx.y", "int plane = blockIdx.z; bins += plane; int row = blockIdx.y"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in LEVELS
    text = LEVELS.replace(old, new)
    ptx(text)
    assert rewritten(rewrite, text, LAUNCHES[LEVELS]) == []


# What is tested beside the limits is of the element.
COUNT = """
__global__ void count(const int* x, float* found, int height, int width, int wanted) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c < width && (r < height) && x[r * width + c] == wanted) {
        atomicAdd(found, 1.0f);
    }
}
"""
LEAVING = COUNT.replace("c < width && (r < height) && x[r * width + c] == wanted) {", "LEAVES) return;\n    {").replace(
    "LEAVES", "((c >= width) || r >= height) || x[r * width + c] != wanted"
)
COUNT_LAUNCH = "def launch(m, x, f, h, w, v):\n    m.count[(-(-w // 16), -(-h // 16)), (16, 16)](x, f, h, w, v)\n"


@pytest.mark.parametrize("text", [COUNT, LEAVING], ids=["around", "leaving"])
@pytest.mark.parametrize("shape", [(H, W), (1, 1), (3, 200)])
def test_elements_that_pass_a_test_are_counted_once_a_block(tmp_path: Path, text: str, shape: tuple[int, int]) -> None:
    found = [c for c in rewritten(block_atomics.rewrite, text, COUNT_LAUNCH) if "one axis" in c.label]
    assert found[0].label.endswith("one atomic a block, 128-bit loads and stores")
    x = np.random.default_rng(5).integers(0, 3, shape).astype(np.int32)
    for one in found:
        ptx(one.kernel.text)
        count = np.zeros(1, np.float32)
        host_runner(tmp_path, one.kernel.text)(-(-x.size // 64), 64, x, count, *shape, 2)
        assert count[0] == (x == 2).sum()
