"""Stencils and filters whose blocks load their neighbours into a tile, or whose threads keep a window of rows."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import Rewrite, host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses import halo_tile, row_window

NAIVE = Path(__file__).parents[2] / "fixtures/naive"
HEIGHT, WIDTH = 37, 45
BLOCK = (16, 16)


def naive(name: str) -> tuple[str, str]:
    """A naive kernel and its workload."""
    return (NAIVE / f"{name}.cu").read_text(), (NAIVE / f"{name}_workload.py").read_text()


def image(rows: int = HEIGHT, columns: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)


CASES = {
    "sobel": lambda: [image(), np.zeros((HEIGHT, WIDTH), np.float32), HEIGHT, WIDTH],
    "heat": lambda: [image(), np.zeros((HEIGHT, WIDTH), np.float32), HEIGHT, WIDTH, 0.2],
    "filter7": lambda: [image(), image(7, 7), np.zeros((HEIGHT, WIDTH), np.float32), HEIGHT, WIDTH],
}


@pytest.mark.parametrize(
    ("name", "rewrite", "number"),
    [
        ("sobel", halo_tile.rewrite, 1),
        ("heat", halo_tile.rewrite, 1),
        ("filter7", halo_tile.rewrite, 1),
        ("sobel", row_window.rewrite, 2),
        ("heat", row_window.rewrite, 2),
    ],
)
def test_the_same_is_written(tmp_path: Path, name: str, rewrite: Rewrite, number: int) -> None:
    text, workload = naive(name)
    found = rewritten(rewrite, text, workload)
    assert len(found) == number
    wanted = CASES[name]()
    host_runner(tmp_path, text)((3, 3), BLOCK, *wanted)
    for one in found:
        ptx(one.kernel.text)
        rows = int(one.label[0]) if one.label[0].isdigit() else 1
        got = CASES[name]()
        host_runner(tmp_path, one.kernel.text)((3, -(-3 // rows)), BLOCK, *got)
        for mine, its in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(mine, its)
        assert one.launch is not None
        assert (one.launch.text == workload) == (rows == 1)


def test_a_row_has_a_tile_too(tmp_path: Path) -> None:
    text, workload = naive("smooth1d")
    (found,) = rewritten(halo_tile.rewrite, text, workload)
    ptx(found.kernel.text)
    signal, weights = image(1, 1000)[0], np.abs(image(1, 17)[0]) + 0.1
    wanted, got = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
    host_runner(tmp_path, text)(4, 256, signal, weights, wanted, 1000)
    host_runner(tmp_path, found.kernel.text)(4, 256, signal, weights, got, 1000)
    np.testing.assert_array_equal(got, wanted)


def test_a_window_keeps_to_the_columns_that_several_rows_need() -> None:
    text, workload = naive("heat")
    found, _ = rewritten(row_window.rewrite, text, workload)
    assert "float old_window[ROWS + 2];" in found.kernel.text
    assert "old[i * width + j - 1]" in found.kernel.text


SUM = """
__global__ void around(const float* in, float* out, int h, int w) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float sum = in[y * w + x];
    if (y > 0) sum += in[(y - 1) * w + x];
    if (y < h - 1) sum += in[(y + 1) * w + x];
    out[y * w + x] = sum;
}
"""
LAUNCH = "def launch(module, a, b, h, w):\n    module.around[(-(-w // 8), -(-h // 8)), (8, 8)](a, b, h, w)\n"


def test_what_is_read_under_a_condition_bounds_the_loads() -> None:
    (tile,) = rewritten(halo_tile.rewrite, SUM, LAUNCH)
    assert "row >= 0 && row < h && column < w" in tile.kernel.text


@pytest.mark.parametrize("rewrite", [halo_tile.rewrite, row_window.rewrite])
def test_a_grid_with_a_frame_is_read_as_far_as_it_goes(tmp_path: Path, rewrite: Rewrite) -> None:
    text = """
__global__ void around(const float* in, float* out, int h, int w) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h)
        out[y * w + x] = in[y * (w + 2) + x] - in[(y + 1) * (w + 2) + x + 2] + in[(y + 2) * (w + 2) + x];
}
"""
    grid = image(HEIGHT + 2, WIDTH + 2)
    wanted = grid[:-2, :-2] - grid[1:-1, 2:] + grid[2:, :-2]
    for one in rewritten(rewrite, text, LAUNCH):
        rows = int(one.label[0]) if one.label[0].isdigit() else 1
        out = np.zeros((HEIGHT, WIDTH), np.float32)
        host_runner(tmp_path, one.kernel.text)((6, -(-5 // rows)), (8, 8), grid, out, HEIGHT, WIDTH)
        np.testing.assert_array_equal(out, wanted)
        ptx(one.kernel.text)
        assert " + 2 " in one.kernel.text  # the last rows or columns of the frame


@pytest.mark.parametrize("rewrite", [halo_tile.rewrite, row_window.rewrite])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("|| y >= h", ""),  # no last row
        (" in[", " out["),  # what is read is written
        ("(y - 1) * w + x]", "(y - 1) * w]|(y + 1) * w + x]|(y + 1) * w]"),  # one column alone
        ("(y - 1) * w", "(y * y - 1) * w|(y + 1) * w|(y * y + 1) * w"),
        ("float sum =", "__shared__ float s; float sum ="),
        ("float sum =", "__syncthreads(); float sum ="),
        ("int x =", "out[0] = 1; int x ="),
        ("in[y * w + x]", "in[y * w + x] + *(in + threadIdx.y)|float sum|in = in + 1; float sum"),
    ],
)
def test_other_kernels_are_left_alone(rewrite: Rewrite, old: str, new: str) -> None:
    text = SUM
    words = [old, *new.split("|")]
    for before, after in zip(words[::2], words[1::2], strict=True):
        assert before in text
        text = text.replace(before, after)
    ptx(text)
    assert rewritten(rewrite, text, LAUNCH) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float sum =", "w += 1; float sum ="),  # a row would see the one before
        ("return;", "return; for (int i = 0; i < 2; ++i) if (in[i] < 0) return;"),
        ("float sum =", "float far = threadIdx.y; float sum = far +"),
    ],
)
def test_rows_that_cannot_follow_each_other_are_left_alone(old: str, new: str) -> None:
    text = SUM.replace(old, new, 1)
    ptx(text)
    assert rewritten(row_window.rewrite, text, LAUNCH) == []


def test_blocks_of_unknown_shape_have_no_tile() -> None:
    assert rewritten(halo_tile.rewrite, SUM, LAUNCH.replace("(8, 8)]", "(w, 8)]")) == []


def test_blocks_of_macros_in_host_code_have_a_shape() -> None:
    host = """
#define SIDE 8
void run(const float* a, float* b, int h, int w) {
    dim3 grid((w + SIDE - 1) / SIDE, (h + SIDE - 1) / SIDE);
    dim3 block(SIDE, SIDE);
    around<<<grid, block>>>(a, b, h, w);
}
"""
    (tile,) = rewritten(halo_tile.rewrite, SUM + host)
    assert "constexpr int COLUMNS = 8, ROWS = 8;" in tile.kernel.text
    rows, _ = rewritten(row_window.rewrite, SUM + host)
    assert "dim3 grid((w + SIDE - 1) / SIDE, ((h + SIDE - 1) / SIDE + 3) / 4);" in rows.kernel.text


# A filter in constant memory; the limits are tested behind the loop, or nowhere.
CONSTANT = """
#define TAPS 3
__constant__ float taps[TAPS * TAPS] = {1, -2, 3, 4, 5, -6, 7, 8, 9};
__global__ void convolve(const float* in, float* out, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int top = row - TAPS / 2, left = col - TAPS / 2;
    float sum = 0;
    for (int i = 0; i < TAPS; i++)
        for (int j = 0; j < TAPS; j++)
            if (top + i >= 0 && top + i < n && left + j >= 0 && left + j < n)
                sum += in[(top + i) * n + left + j] * taps[i * TAPS + j];
    if (row < n && col < n) out[row * n + col] = sum;
}
"""
CONSTANT_LAUNCH = "def launch(m, x, y, n):\n    m.convolve[(-(-n // 16), -(-n // 16)), (16, 16)](x, y, n)\n"
BY_ROWS = CONSTANT.replace("[TAPS * TAPS]", "[TAPS][TAPS]").replace("[i * TAPS + j]", "[i][j]")


@pytest.mark.parametrize("text", [CONSTANT, BY_ROWS], ids=["flat", "by_rows"])
@pytest.mark.parametrize("n", [1, 16, 37])
def test_a_filter_in_constant_memory_stays_there(tmp_path: Path, text: str, n: int) -> None:
    (found,) = rewritten(halo_tile.rewrite, text, CONSTANT_LAUNCH)
    ptx(found.kernel.text)
    wanted, got = np.zeros((n, n), np.float32), np.zeros((n, n), np.float32)
    grid = (-(-n // 16), -(-n // 16))
    host_runner(tmp_path, text)(grid, BLOCK, image(n, n), wanted, n)
    host_runner(tmp_path, found.kernel.text)(grid, BLOCK, image(n, n), got, n)
    np.testing.assert_array_equal(got, wanted)
    assert "taps_tile" not in found.kernel.text


def test_an_array_of_the_file_that_a_kernel_may_write_keeps_it() -> None:
    assert rewritten(halo_tile.rewrite, CONSTANT.replace("__constant__", "__device__"), CONSTANT_LAUNCH) == []
