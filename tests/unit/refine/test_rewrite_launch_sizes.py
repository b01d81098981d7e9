"""Launches whose blocks have a size that the file gives a name, as most lectures do."""

import pytest
from rewrite_support import rewritten

from kernel_lsp.refine.rewrites.reductions.block_atomics import rewrite as atomics
from kernel_lsp.refine.rewrites.reductions.parallel_rows import rewrite as rows

ROWS = """
#define THREADS 64
#define ONE 1
static const int WARPS = 2;
__global__ void rows(const float* a, float* y, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float sum = 0.0f;
        for (int j = 0; j < k; j++) sum += a[i * k + j];
        y[i] = sum;
    }
}
void run(const float* a, float* y, int n, int k) {
    dim3 block(THREADS, ONE);
    rows<<<(n + THREADS - 1) / THREADS, block>>>(a, y, n, k);
}
"""
BLOCK = "dim3 block(THREADS, ONE);"
BLOCKS = [
    BLOCK,
    "dim3 block(THREADS);",  # reads like the declaration of a function
    "dim3 block = dim3(2 * 32u, ONE);",
    "dim3 block{THREADS, ONE};",
    "int block = 32 * WARPS;",
    "constexpr int SIZE = 64; dim3 block(SIZE);",
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_whole_warps_stays(block: str) -> None:
    warp, *_ = rewritten(rows, ROWS.replace(BLOCK, block))
    assert warp.label == "one warp a row"
    assert f"{block}\n    rows<<<(n + 1) / 2, block>>>" in warp.kernel.text


@pytest.mark.parametrize(
    ("block", "changed"),
    [("dim3 block{100, ONE};", "dim3 block{128, ONE};"), ("dim3 block(THREADS + 1);", "dim3 block(128);")],
)
def test_a_block_of_another_size_becomes_whole_warps(block: str, changed: str) -> None:
    warp, *_ = rewritten(rows, ROWS.replace(BLOCK, block))
    assert f"{changed}\n    rows<<<(n + 3) / 4, block>>>" in warp.kernel.text


@pytest.mark.parametrize("block", ["dim3 block(THREADS, THREADS);", "int ONE = n; dim3 block(THREADS, ONE);"])
def test_another_axis_that_may_be_more_than_one_keeps_the_kernel(block: str) -> None:
    assert rewritten(rows, ROWS.replace(BLOCK, block)) == []


def test_a_parameter_is_no_constant_of_the_file() -> None:
    text = ROWS.replace("#define ONE 1", "const int ONE = 1;").replace(
        "int n, int k) {\n    dim3", "int n, int k, int ONE) {\n    dim3"
    )
    assert rewritten(rows, text) == []


def test_blocks_add_once_where_their_size_has_a_name() -> None:
    text = """
    const int SIZE = 128;
    __global__ void dot(const float* a, const float* b, float* sum, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(sum, a[i] * b[i]);
    }
    void run(const float* a, const float* b, float* sum, int n) {
        dim3 block(SIZE);
        dot<<<(n + SIZE - 1) / SIZE, block>>>(a, b, sum, n);
    }
    """
    assert rewritten(atomics, text)[-1].label == "one atomic a block"
    assert rewritten(atomics, text.replace("SIZE = 128", "SIZE = 100")) == []
