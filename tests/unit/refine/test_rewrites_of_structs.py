"""Kernels that are given matrices as structs get the rewrites of those that are given pointers and sizes."""

from itertools import pairwise

import numpy as np
import pytest
from rewrite_support import emulated, rewritten

from kernel_lsp.refine.rewrites.products import tile_product
from kernel_lsp.refine.rewrites.reductions import parallel_rows
from kernel_lsp.source.candidate import Candidate

PRODUCT = """
typedef struct Dense {
    int rows, columns;
    float *data;
} Matrix;

__global__ void product(Matrix a, Matrix b, Matrix c) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= c.rows || column >= c.columns) return;
    float sum = 0.0f;
    for (int k = 0; k < a.columns; ++k) {
        sum += a.data[row * a.columns + k] * b.data[k * b.columns + column];
    }
    c.data[row * c.columns + column] = sum;
}

void run(Matrix left, Matrix right, Matrix result) {
    dim3 block(16, 16);
    dim3 grid((result.columns + 15) / 16, (result.rows + 15) / 16);
    product<<<grid, block>>>(left, right, result);
}
"""
SPARSE = """
struct Sparse {
    const int* starts;
    const int* columns;
    const float* values;
    unsigned rows;
};

__global__ void times(struct Sparse m, const float* x, float* y) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m.rows) {
        float sum = 0.0f;
        for (int i = m.starts[row]; i < m.starts[row + 1]; i++) {
            sum += m.values[i] * x[m.columns[i]];
        }
        y[row] = sum;
    }
}

void run(Sparse m, const float* x, float* y) { times<<<(m.rows + 255) / 256, 256>>>(m, x, y); }
"""


def device(made: Candidate) -> str:
    """The text without its host code."""
    return made.kernel.text.partition("void run")[0]


def test_a_product_of_structs_goes_through_tiles() -> None:
    *_, plain = rewritten(tile_product.rewrite, PRODUCT)
    assert "// Tiles of a.data and b.data go through shared memory" in plain.kernel.text
    assert "__shared__ float a_data_tile[TILE][TILE];" in plain.kernel.text
    assert "row < c.rows && first_k + threadIdx.x < a.columns ? a.data[row * a.columns" in plain.kernel.text
    assert "dim3 grid((result.columns + 15) / 16, (result.rows + 15) / 16);" in plain.kernel.text


@pytest.mark.parametrize("number", [0, -1])
def test_tiles_of_structs_give_the_same_product(number: int) -> None:
    made = rewritten(tile_product.rewrite, PRODUCT)[number]
    drawn = np.random.default_rng(3)
    a, b = (drawn.standard_normal(shape).astype(np.float32) for shape in ((37, 21), (21, 19)))
    c = np.full((37, 19), np.nan, np.float32)
    *_, got = emulated(device(made), (2, 3), (16, 16), (37, 21, a), (21, 19, b), (37, 19, c))
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)


def test_rows_of_a_sparse_struct_get_a_warp_each() -> None:
    warp = rewritten(parallel_rows.rewrite, SPARSE)[0]
    assert "for (int i = m.starts[row] + lane; i < m.starts[row + 1]; i += 32)" in warp.kernel.text
    drawn = np.random.default_rng(4)
    lengths = drawn.integers(0, 80, 13)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns, values = drawn.integers(0, 50, starts[-1]).astype(np.int32), drawn.random(starts[-1], np.float32)
    x, y = drawn.random(50, np.float32), np.zeros(13, np.float32)
    right = [float(values[a:b] @ x[columns[a:b]]) for a, b in pairwise(starts)]
    *_, got = emulated(device(warp), (2, 1), (256, 1), (starts, columns, values, 13), x, y)
    np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    float sum = 0.0f;", "    a.columns = c.rows;\n    float sum = 0.0f;"),  # a size that changes
        ("    float sum = 0.0f;", "    ++b.data;\n    float sum = 0.0f;"),
        ("(Matrix a, ", "(Matrix* a, "),
        ("a.data[row * a.columns + k]", "at(a, row, k)"),  # hides what it reads
        ("    float *data;", "    float data[64];"),
    ],
)
def test_structs_whose_members_are_not_known_are_left_alone(old: str, new: str) -> None:
    assert old in PRODUCT
    helper = "__device__ float at(Matrix m, int i, int j) { return m.data[i * m.columns + j]; }\n"
    text = PRODUCT.replace(old, new).replace("__global__", f"{helper}\n__global__")
    assert rewritten(tile_product.rewrite, text) == []


def test_a_workload_that_passes_a_struct_keeps_the_kernel() -> None:
    launch = "def launch(module, a, b, c):\n    module.product[(2, 2), (16, 16)](a, b, c)\n"
    assert rewritten(tile_product.rewrite, PRODUCT, launch) == []


def test_a_grid_does_not_name_what_is_known_behind_it() -> None:
    late = PRODUCT.replace(
        "void run(Matrix left, Matrix right, Matrix result) {", "void run(Matrix left, Matrix right) {"
    )
    late = late.replace("    product<<<", "    Matrix result = made();\n    product<<<").replace("(result.", "(left.")
    *_, plain = rewritten(tile_product.rewrite, late)
    assert "product<<<dim3((result.columns + 15) / 16, (result.rows + 15) / 16), block>>>" in plain.kernel.text
