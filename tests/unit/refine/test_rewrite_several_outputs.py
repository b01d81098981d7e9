"""Convolutions with a thread for each output, in the ways that people write them."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.several_outputs import rewrite

IMAGES, CHANNELS, FILTERS, WIDTH, TAPS = 2, 3, 10, 9, 3
OUT = WIDTH - TAPS + 1

# A filter for each row of blocks; a condition around the work.
BY_BLOCK = """
__global__ void conv(const float* x, const float* w, float* y, int channels, int filters, int width, int taps) {
    int m = blockIdx.y;
    int out = width - taps + 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < out * out) {
        float sum = 0.0f;
        for (int c = 0; c < channels; c++)
            for (int p = 0; p < taps; p++)
                for (int q = 0; q < taps; q++)
                    sum += x[(c * width + i / out + p) * width + i % out + q] * w[((m * channels + c) * taps + p) * taps + q];
        y[m * out * out + i] = sum;
    }
}
"""  # noqa: E501
# Filters and images in one number; a value of the filter's own, and variables as C had them.
IN_ONE = """
__global__ void conv(const float* x, const float* w, float* y, int channels, int filters, int width, int taps) {
    const int m = blockIdx.y % filters;
    const int n = blockIdx.y / filters;
    int out = width - taps + 1, c, p, q;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= out * out) return;
    float sum = w[m];
    for (c = 0; c < channels; c++) {
        for (p = 0; p < taps; p++)
            for (q = 0; q < taps; q++) {
                if (p == 1 && q == 1) continue;
                float value = x[((n * channels + c) * width + i / out + p) * width + i % out + q];
                float factor = w[((m * channels + c) * taps + p) * taps + q];
                sum += value * factor;
            }
    }
    sum = fmaxf(sum, 0.0f);
    y[(n * filters + m) * out * out + i] = sum;
}
"""
LAUNCH = """
def launch(module, x, w, y, n, c, f, h, k):
    grid = -(-h // 64), f
    module.conv[grid, 64](x, w, y, c, f, h, k)
"""
LAUNCH_IN_ONE = LAUNCH.replace(", f\n", ", n * f\n")
LAUNCHES = {BY_BLOCK: LAUNCH, IN_ONE: LAUNCH_IN_ONE}


def arguments() -> list[np.ndarray | float]:
    draw = np.random.default_rng(2)
    x = draw.standard_normal((IMAGES, CHANNELS, WIDTH, WIDTH)).astype(np.float32)
    w = draw.standard_normal((FILTERS, CHANNELS, TAPS, TAPS)).astype(np.float32)
    y = np.full((IMAGES, FILTERS, OUT, OUT), 7, np.float32)
    return [x, w, y, CHANNELS, FILTERS, WIDTH, TAPS]


@pytest.mark.parametrize("text", LAUNCHES, ids=["block", "in_one"])
def test_several_outputs_a_thread_are_the_same(tmp_path: Path, text: str) -> None:
    images = IMAGES if text == IN_ONE else 1
    right = arguments()
    host_runner(tmp_path, text)((1, images * FILTERS), (64, 1), *right)
    found = rewritten(rewrite, text, LAUNCHES[text])
    assert [one.label for one in found] == ["8 outputs a thread along `m`", "4 outputs a thread along `m`"]
    for one, outputs in zip(found, (8, 4), strict=True):
        ptx(one.kernel.text)
        given = arguments()
        host_runner(tmp_path, one.kernel.text)((1, images * -(-FILTERS // outputs)), (64, 1), *given)
        for new, old in zip(given, right, strict=True):
            np.testing.assert_array_equal(new, old)


def test_the_launch_has_fewer_blocks_along_the_axis() -> None:
    for text, launched in ((BY_BLOCK, "grid = -(-h // 64), -(-f // 8)"), (IN_ONE, "-(-h // 64), n * (-(-f // 8))")):
        found = rewritten(rewrite, text, LAUNCHES[text])[0].launch
        assert found is not None
        assert launched in found.text.replace("(-(-h // 64), -(-f // 8))", "-(-h // 64), -(-f // 8)")


def test_only_what_depends_on_the_number_is_repeated() -> None:
    text = rewritten(rewrite, IN_ONE, LAUNCH_IN_ONE)[1].kernel.text
    assert "float value = x[" in text.split("#pragma")[0]
    inner = text.split("#pragma unroll")[1]
    assert "const int m = min(first_m + output, filters - 1);" in inner
    assert "sum[output] += value * factor;" in inner
    assert "if (m < filters) {" in text.split("#pragma unroll")[2]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int m = blockIdx.y;", "int m = blockIdx.y + 1;"),
        ("float sum = 0.0f;", "float sum = blockIdx.y;"),  # the block's number elsewhere
        ("float sum = 0.0f;", "float sum = 0.0f; y[m] = 1;"),
        ("x[(c * width", "x[m + (c * width"),  # nothing is shared
        ("w[((m * channels", "w[((channels"),  # no input of its own
        ("c < channels", "c < channels - m"),  # loops of other lengths
        ("x[(c", "y[(c"),  # what other threads write
        ("y[m * out * out + i] = sum;", "for (int k = 0; k < 3; k++) sum += 1; y[m * out * out + i] = sum;"),
        ("y[m * out * out + i] = sum;", "if (sum < 0) return; y[m * out * out + i] = sum;"),
        ("y[m * out * out + i] = sum;", "out++; y[m * out * out + i] = sum;"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in BY_BLOCK
    text = BY_BLOCK.replace(old, new)
    ptx(text)
    assert rewritten(rewrite, text, LAUNCH) == []


@pytest.mark.parametrize("grid", ["-(-h // 64), f + 1", "-(-h // 64), 10", "-(-h // 64), w.shape[0]"])
def test_a_number_of_outputs_that_no_argument_says_is_left_alone(grid: str) -> None:
    assert rewritten(rewrite, BY_BLOCK, LAUNCH.replace("-(-h // 64), f", grid)) == []
    assert rewritten(rewrite, IN_ONE, LAUNCH_IN_ONE.replace("-(-h // 64), n * f", grid)) == []
