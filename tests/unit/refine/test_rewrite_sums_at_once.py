"""Several outputs of one thread, each a sum: all sums are added up side by side."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.sums_at_once import rewrite

ROWS, COLUMNS, TERMS = 12, 8, 5
PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int width, int terms, float scale) {
    int first_row = 4 * (blockIdx.y * blockDim.y + threadIdx.y);
    int first_column = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int y = 0; y < 4; ++y) {
        int row = first_row + y;
        for (int x = 0; x < 2; ++x) {
            int column = first_column + x;
            float sum = 0;
            for (int k = 0; k < terms; ++k) {
                sum += a[row * terms + k] * b[column * terms + k];
            }
            c[row * width + column] = sum * scale;
        }
    }
}
"""
LAUNCH = "def launch(module, a, b, c):\n    module.product[(2, 2), (2, 2)](a, b, c, 8, 5, 0.5)\n"
TERM = "sum += a[row * terms + k] * b[column * terms + k];"
STORE = "c[row * width + column] = sum * scale;"


def test_sums_lie_side_by_side_and_have_the_same_terms_in_the_same_order(tmp_path: Path) -> None:
    (found,) = rewritten(rewrite, PRODUCT, LAUNCH)
    assert "float sum[4][2] = {};" in found.kernel.text
    assert found.kernel.text.index("int k = 0") < found.kernel.text.index("int y = 0")
    ptx(found.kernel.text)
    draw = np.random.default_rng(3)
    a, b = (draw.standard_normal((n, TERMS)).astype(np.float32) for n in (ROWS + 4, COLUMNS))
    results = []
    for number, text in enumerate((PRODUCT, found.kernel.text)):
        c = np.zeros((ROWS + 4, COLUMNS), np.float32)
        (tmp_path / str(number)).mkdir()
        host_runner(tmp_path / str(number), text)((2, 2), (2, 2), a, b, c, COLUMNS, TERMS, 0.5)
        results.append(c)
    assert np.abs(results[0]).sum() > 1
    np.testing.assert_array_equal(*results)


def test_loops_that_say_that_they_are_unrolled_are_read() -> None:
    (plain,) = rewritten(rewrite, PRODUCT, LAUNCH)
    pragmas = PRODUCT.replace("    for (", "    #pragma unroll\n    for (")
    (found,) = rewritten(rewrite, pragmas.replace("int row = first_row + y;", "int row = first_row + y + 0 * terms;"))
    assert found.kernel.text == plain.kernel.text.replace("first_row + y;", "first_row + y + 0 * terms;")


def test_a_function_that_a_kernel_is_given_as_it_is_launched_is_looked_at() -> None:
    function = PRODUCT.replace("__global__ void product", "__device__ void outputs")
    kernel = """
template <void (*OUTPUTS)(const float*, const float*, float*, int, int, float)>
__global__ void product(const float* a, const float* b, float* c) { OUTPUTS(a, b, c, 8, 5, 0.5f); }
"""
    (found,) = rewritten(rewrite, function + kernel, LAUNCH.replace("module.product", 'module["product<outputs>"]'))
    assert "float sum[4][2] = {};" in found.kernel.text
    assert not rewritten(rewrite, function + kernel, LAUNCH)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TERM, "sum += c[row * terms + k] * b[column * terms + k];"),  # what one sum stores another loads
        (TERM, "sum = a[row * terms + k] * b[column * terms + k];"),
        (TERM, "sum += atomicAdd(c, 1.0f) * b[column * terms + k];"),
        (TERM, f"if (column > k) {TERM}"),
        (STORE, f"if (sum > 0) break;\n{STORE}"),
        (STORE, "scale = sum;"),
        ("k < terms", "k < column"),  # sums of different lengths
        ("k < terms", "k < (int)c[0]"),
        ("int column = first_column + x;", "int column = first_column + x + (int)c[x];"),
        ("int k = 0; k < terms; ++k", "int x = 0; x < terms; ++x"),  # the name of an output's number
        ("float sum = 0;", "float sum = scale;"),
        ("float sum = 0;", "float sum = 0; ++width;"),
        ("x < 2", "x < width"),
        ("x < 2", "x < 80"),  # more sums than registers hold
    ],
)
def test_other_loops_stay_as_they_are(old: str, new: str) -> None:
    assert old in PRODUCT
    assert not rewritten(rewrite, PRODUCT.replace(old, new), LAUNCH)


@pytest.mark.parametrize(("old", "new"), [("k < terms", "k < row"), ("y < 4", "y < width"), ("y < 4", "y < 40")])
def test_the_inner_loop_is_taken_alone_where_the_outer_one_cannot_be(old: str, new: str) -> None:
    (found,) = rewritten(rewrite, PRODUCT.replace(old, new), LAUNCH)
    assert "float sum[2] = {};" in found.kernel.text
    ptx(found.kernel.text)
