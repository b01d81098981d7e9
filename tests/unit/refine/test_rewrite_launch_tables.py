"""Launches whose kernel, grid and block a workload looks up in a table."""

import pytest
from rewrite_support import rewritten

from kernel_lsp.refine.rewrites.accesses.multi_element import rewrite as more_elements
from kernel_lsp.refine.rewrites.products.tile_product import rewrite as tiles

PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
        c[row * n + column] = sum;
    }
}
"""
TABLE = """
VERSION = 1


def launch(module, a, b, c, m, n, k):
    name, grid, block = {
        1: ("product", (-(-n // 32), -(-m // 32)), (32, 32)),
        2: ("product_by_hand<32>", (n // 32, m // 32), 1024),
    }[VERSION]
    module[name][grid, block](a, b, c, m, n, k)
"""
SCALE = """
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def test_the_entry_that_a_constant_picks_is_changed() -> None:
    *_, tiled = rewritten(tiles, PRODUCT, TABLE)
    assert tiled.launch
    assert '1: ("product", (-(-n // 16), -(-m // 16)), (16, 16)),' in tiled.launch.text
    assert '2: ("product_by_hand<32>", (n // 32, m // 32), 1024),' in tiled.launch.text


def test_tiles_are_followed_by_several_elements_a_thread_in_one_step() -> None:
    first, *_ = rewritten(tiles, PRODUCT, TABLE)
    assert first.label == "tiles of 16 x 16 in shared memory, 4 x 4 outputs per thread"
    assert first.launch
    assert "(-(-(-(-n // 16)) // 4), -(-(-(-m // 16)) // 4)), (16, 16)" in first.launch.text


def test_a_grid_in_a_table_grows_smaller_with_several_elements_a_thread() -> None:
    table = (
        TABLE.replace('"product"', '"scale"').replace("a, b, c, m, n, k", "x, y, n").replace(", -(-m // 32)),", ",),")
    )
    first, *_ = rewritten(more_elements, SCALE, table.replace("(32, 32)", "256"))
    assert first.launch
    assert '1: ("scale", (-(-(-(-n // 32)) // ' in first.launch.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[VERSION]", "[a.shape[0]]"),
        ("module, a", "module, VERSION, a"),  # another one of that name
        ("VERSION = 1\n", "VERSION = 1\nVERSION += 1\n"),
        ("VERSION = 1\n", "for VERSION in (1, 2): pass\n"),
        ("def launch", "def other():\n    global VERSION\n    VERSION = 2\n\n\ndef launch"),
        ("        2: (", "        1: ("),
        ("    module[name]", "    name = 'product'\n    module[name]"),
        ("    name, grid, block =", "    name, *grid ="),
    ],
)
def test_an_entry_that_is_not_certain_keeps_the_kernel(old: str, new: str) -> None:
    assert old in TABLE
    assert rewritten(tiles, PRODUCT, TABLE.replace(old, new)) == []
