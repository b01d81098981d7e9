"""Transposed copies by tiles whose rows a loop goes through."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses import launched_limits
from kernel_lsp.refine.rewrites.accesses.transpose_loop import rewrite

# As in a lecture: sizes from the grid, and no tests.
LECTURE = """
const int TILE = 16;
const int ROWS = 4;
__global__ void turn(float* out, const float* in) {
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    int width = gridDim.x * TILE;
    for (int j = 0; j < TILE; j += ROWS)
        out[x * width + (y + j)] = in[(y + j) * width + x];
}
"""
# Both indices ahead of the loop, sizes as parameters, braces, a last `return`.
AHEAD = """
#define TILE 16
#define ROWS 8
__global__ void turn(float* out, const float* in, int width, int height) {
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    int from = x + width * y;
    int to = y + height * x;
    for (int i = 0; i < TILE; i += ROWS) {
        out[to + i] = in[from + i * width];
    }
    return;
}
"""
LAUNCHES = {
    LECTURE: "def launch(m, out, a, w, h):\n    m.turn[(w // 16, w // 16), (16, 4)](out, a)\n",
    AHEAD: "def launch(m, out, a, w, h):\n    m.turn[(w // 16, h // 16), (16, 8)](out, a, w, h)\n",
}


@pytest.mark.parametrize("text", LAUNCHES, ids=["lecture", "ahead"])
def test_the_same_matrix_is_written(tmp_path: Path, text: str) -> None:
    (one,) = rewritten(rewrite, text, LAUNCHES[text])
    ptx(one.kernel.text)
    height = 32 if text == LECTURE else 48
    a = np.random.default_rng(1).standard_normal((height, 32)).astype(np.float32)
    out, rest = np.zeros((32, height), np.float32), () if text == LECTURE else (32, height)
    host_runner(tmp_path, one.kernel.text)((2, height // 16), (16, 4 if text == LECTURE else 8), out, a, *rest)
    np.testing.assert_array_equal(out, a.T)


def test_the_text_names_the_tile_and_drops_what_nothing_needs() -> None:
    (one,) = rewritten(rewrite, AHEAD, LAUNCHES[AHEAD])
    assert "out[(blockIdx.x * TILE + threadIdx.y + i) * height + blockIdx.y * TILE + threadIdx.x]" in one.kernel.text
    assert "int to" not in one.kernel.text
    (one,) = rewritten(rewrite, LECTURE, LAUNCHES[LECTURE])
    assert "__shared__ float tile[TILE][TILE + 1];" in one.kernel.text
    assert "(blockIdx.x * TILE + threadIdx.y + j) * width + blockIdx.y" in one.kernel.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out[to + i]", "out[to + 2 * i]"),
        ("out[to + i]", "out[from + i * width]"),  # a copy in place
        ("in[from + i * width]", "out[from + i * width]"),
        ("in[from + i * width]", "in[from + i]"),
        ("i = 0;", "i = 1;"),
        ("i += ROWS", "i += 3"),
        ("int to =", "out[0] = 0; int to ="),
        ("i * width];", "i * width] + x;"),
        ("    for (", "    __syncthreads(); for ("),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in AHEAD
    text = AHEAD.replace(old, new)
    ptx(text)
    assert rewritten(rewrite, text, LAUNCHES[AHEAD]) == []


@pytest.mark.parametrize("shape", ["(16, 16)", "(16, 8, 2)", "16"])
def test_a_block_of_another_shape_is_left_alone(shape: str) -> None:
    assert rewritten(rewrite, AHEAD, LAUNCHES[AHEAD].replace("(16, 8)", shape)) == []


def test_a_block_may_say_that_it_has_one_layer() -> None:
    assert rewritten(rewrite, AHEAD, LAUNCHES[AHEAD].replace("(16, 8)", "(16, 8, 1)"))


def test_one_element_a_thread_without_a_test_goes_through_tiles() -> None:
    text = """
    __global__ void turn(float* out, const float* in, int width, int height) {
        int x = blockIdx.x * blockDim.x + threadIdx.x;
        int y = blockIdx.y * blockDim.y + threadIdx.y;
        out[x * height + y] = in[y * width + x];
    }
    """
    found = rewritten(launched_limits.rewrite, text, LAUNCHES[AHEAD].replace("h // 16", "h // 8"))
    assert [one.label for one in found] == ["limits of the launch, tiles of 32 x 32 through shared memory"]
    ptx(found[0].kernel.text)
