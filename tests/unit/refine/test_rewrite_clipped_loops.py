"""Loops over windows run over the part that lies inside, in place of a test at each point."""

import re
from pathlib import Path

import numpy as np
import pytest
from rewrite_support import cuda_kernel, emulated, rewritten

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.refine.rewrites.accesses.clipped_loops import rewrite
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Language

FILTER = """
__global__ void filter(const float* in, const float* taps, float* out, int height, int width, int size) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int radius = size / 2;
    float sum = 0.0f;
    for (int i = 0; i < size; ++i) {
        for (int j = 0; j < size; ++j) {
            int row = y + i - radius;
            int column = x + j - radius;
            if (row >= 0 && row < height && column >= 0 && column < width) {
                sum += in[row * width + column] * taps[i * size + j];
            }
        }
    }
    out[y * width + x] = sum;
}
"""
# Leaves by `continue`, one axis at a time; sizes are unsigned, and the mean is of the points inside.
MEAN = """
__global__ void mean(const float* in, float* out, size_t height, size_t width, int radius) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        float sum = 0.0f;
        int inside = 0;
        for (int i = -radius; i <= radius; i++) {
            const int row = y + i;
            if (row < 0 || row >= height) continue;  // above or below
            for (int column = x - radius; column <= x + radius; column++) {
                if (column < 0 || column >= width || inside > 99) continue;
                sum += in[row * width + column];
                inside++;
            }
        }
        out[y * width + x] = sum / inside;
    }
}
"""
# A test around the inner loop, and one in it.
LARGEST = """
__global__ void largest(const float* in, const float* mask, float* out, int height, int width, int size) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int radius = size / 2;
    float best = 0.0f;
    for (int i = 0; i < size; ++i) {
        int row = y + i - radius;
        if (row >= 0 && row < height) {
            for (int j = 0; j < size; ++j) {
                int column = x + j - radius;
                if (column >= 0 && column < width && mask[i * size + j] != 0) {
                    best = fmaxf(best, in[row * width + column]);
                }
            }
        }
    }
    out[y * width + x] = best;
}
"""
# Two steps of the input for each output; a window's last points may be outside, and its order is turned.
POOL = """
__global__ void pool(const float* in, float* out, int n, int outputs, int size) {
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o < outputs) {
        int last = 2 * o + size - 1;
        float largest = -1e30f;
        for (int k = 0; k < size; ++k)
            if (n > last - k) largest = fmaxf(largest, in[last - k]);
        out[o] = largest;
    }
}
"""


def only(text: str) -> str:
    (made,) = rewritten(rewrite, text)
    assert made.label == "loops over the part of a window that lies inside"
    return made.kernel.text


def test_tests_move_into_the_heads_of_their_loops() -> None:
    text = only(FILTER)
    assert "for (int i = max(0, radius - y); i < min(size, height + radius - y); ++i) {" in text
    assert "for (int j = max(0, radius - x); j < min(size, radius + width - x); ++j) {" in text
    assert "            sum += in[row * width + column] * taps[i * size + j];\n        }\n" in text
    assert "if (row" not in text


def test_what_is_no_limit_stays_a_test() -> None:
    text = only(MEAN)
    assert "for (int i = max(-radius, -y); i <= min(radius, static_cast<int>(height) - y - 1); i++) {" in text
    assert "for (int column = max(x - radius, 0);\n" in text
    assert "                 column <= min(x + radius, static_cast<int>(width) - 1); column++) {\n" in text
    assert "if (inside > 99) continue;" in text
    assert "above or below" not in text


@pytest.mark.parametrize(("height", "width", "size"), [(19, 37, 5), (3, 2, 9), (1, 40, 4)])
def test_filters_are_the_same_at_every_border(height: int, width: int, size: int) -> None:
    drawn = np.random.default_rng(height)
    given = drawn.random((height, width), np.float32), drawn.random((size, size), np.float32)
    for old, arguments in (
        (FILTER, (*given, np.zeros((height, width), np.float32), height, width, size)),
        (
            MEAN.replace("size_t", "unsigned"),
            (given[0], np.zeros((height, width), np.float32), height, width, size // 2),
        ),
        (LARGEST, (*given, np.zeros((height, width), np.float32), height, width, size)),
    ):
        right, got = (emulated(text, (2, 3), (32, 8), *arguments) for text in (old, only(old)))
        np.testing.assert_array_equal(got[-1], right[-1])
        assert right[-1].any()


@pytest.mark.parametrize("n", [1, 50, 64, 67])
def test_windows_that_run_backwards_are_the_same(n: int) -> None:
    text = only(POOL)
    assert "for (int k = max(0, last + 1 - n); k < size; ++k)" in text
    values, out = np.random.default_rng(n).random(n, np.float32), np.zeros(33, np.float32)
    right, got = (emulated(one, (2, 1), (32, 1), values, out, n, 33, 6) for one in (POOL, text))
    np.testing.assert_array_equal(got[-1], right[-1])


def test_a_test_around_a_loop_with_a_test_goes_too() -> None:
    text = only(LARGEST)
    assert "int i = max(0, radius - y); i < min(size, height + radius - y)" in text
    assert "int j = max(0, radius - x); j < min(size, radius + width - x)" in text
    assert "if (mask[i * size + j] != 0) {" in text
    assert "\n        for (int j" in text


def test_a_head_that_is_too_long_gets_two_lines() -> None:
    text = only(re.sub(r"\bheight\b", "number_of_rows_of_the_image", re.sub(r"\bi\b", "row_of_filter", FILTER)))
    assert "\n         row_of_filter < min(size, number_of_rows_of_the_image + radius - y); ++row_of_filter) {" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int i = 0;", "unsigned i = 0;"),  # below 0 is beyond all limits
        ("int row = y", "unsigned row = y"),
        ("int row = y + i - radius", "int row = (unsigned)(y + i) - radius"),
        ("int y =", "unsigned y ="),
        ("row >= 0 && row < height", "row < (size_t)height"),
        ("int height,", "long height,"),
        ("row >= 0 && row < height", "row * size < height"),
        ("row >= 0 && row < height", "row < taps[0]"),
        ("y + i - radius", "y + 2 * i - radius"),
        ("sum += in[row", "--height; sum += in[row"),
    ],
)
def test_rows_of_other_windows_keep_a_test(old: str, new: str) -> None:
    assert old in FILTER
    assert all("if (row" in one.kernel.text for one in rewritten(rewrite, FILTER.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "head"),
    [
        ("int height,", "unsigned height,", "min(size, static_cast<int>(height) + radius - y)"),
        ("int width, int size", "int width, size_t size", "min(static_cast<int>(size), height + radius - y)"),
        ("row >= 0 && ", "", "int i = 0; i < min(size, height + radius - y)"),
    ],
)
def test_limits_may_be_unsigned_or_on_one_side(old: str, new: str, head: str) -> None:
    assert old in FILTER
    assert head in only(FILTER.replace(old, new))


def test_an_unsigned_limit_alone_excludes_what_is_negative() -> None:
    text = only(FILTER.replace("row >= 0 && ", "").replace("int height,", "unsigned height,"))
    assert "if (row < height) {" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "                sum += in[row * width + column] * taps[i * size + j];\n            }",
            "\\g<0> else sum -= 1.0f;",
        ),
        ("            int column = x", "            sum += 0.5f;\n\\g<0>"),
        ("            int column = x", "            int column = y++ + x"),
        (r"        for \(int j = 0.*", "        sum += 0.5f;\n\\g<0>"),
    ],
)
def test_work_outside_of_the_window_is_kept(old: str, new: str) -> None:
    pattern = old if old.startswith("        for") else re.escape(old)
    text = re.sub(pattern, new, FILTER, count=1)
    assert text != FILTER
    assert all("int i = 0; i < size" in one.kernel.text for one in rewritten(rewrite, text))


@pytest.mark.parametrize(
    ("ahead", "work"),
    [
        ("", "{ float value = in[last - k]; largest = fmaxf(largest, value); }"),
        ("{ float value = k; ", "{ float value = 0.5f * last; largest += value; } }"),
    ],
)
def test_braces_stay_where_the_loop_needs_them(ahead: str, work: str) -> None:
    test = "if (n > last - k) "
    naive = POOL.replace(f"{test}largest = fmaxf(largest, in[last - k]);", f"{ahead}{test}{work}")
    assert work in naive
    values, out = np.random.default_rng(1).random(50, np.float32), np.zeros(33, np.float32)
    right, got = (emulated(one, (2, 1), (32, 1), values, out, 50, 33, 6) for one in (naive, only(naive)))
    np.testing.assert_array_equal(got[-1], right[-1])


def test_small_windows_are_left_to_the_compiler() -> None:
    small = FILTER.replace(", int size)", ")").replace("int radius = size / 2;", "const int size = 3, radius = 1;")
    assert rewritten(rewrite, small) == []
    assert rewritten(rewrite, small.replace("size = 3, radius = 1", "size = 31, radius = 15"))


def test_threads_that_meet_in_the_window_are_left_alone() -> None:
    assert rewritten(rewrite, FILTER.replace("sum += in[row", "__syncwarp(); sum += in[row")) == []


def test_it_is_tried() -> None:
    file, kernel = cuda_kernel(FILTER)
    base = Candidate(Language.CUDA, file, None, "", "")
    assert "rewrite:clipped_loops" in {one.origin for one in find_rewrites(base, kernel, device_named("H200"))}
    assert Path(file.path).name == "kernel.cu"
