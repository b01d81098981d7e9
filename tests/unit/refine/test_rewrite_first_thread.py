"""Kernels of which the first thread works, and all others leave."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import cuda_kernel, emulated, rewritten

from kernel_lsp.refine.rewrites.reductions import grid_scan, one_thread
from kernel_lsp.refine.rewrites.reductions.first_thread import unguarded
from kernel_lsp.source.candidate import SourceFile

TOTAL = """
__global__ void total(const int* x, int* sum, int n) {
    int block = blockIdx.x;
    int i = blockDim.x * block + threadIdx.x;
    if (i == 0) {
        int own = 0;
        for (int k = 0; k < n; ++k) own += x[k];
        sum[0] = own;
    }
}
"""
PER_BLOCK = """
__global__ void total(const int* x, int* sum, int n, int rows) {
    const int row = blockIdx.x;
    if (threadIdx.x != 0 || row >= rows) return;  // the first thread has the row
    int own = 0;
    for (int k = 0; k < n; ++k) own += x[row * n + k];
    sum[row] = own;
}
"""
PLACES = """
__global__ void places(unsigned int* counts, int n) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    unsigned int before = 0;
    for (int i = 0; i < n; ++i) {
        unsigned int count = counts[i];
        counts[i] = before;
        before += count;
    }
}
"""
LAUNCH = "def launch(module, x, sum, n):\n    module.total[4, 64](x, sum, n)\n"
ROWS_LAUNCH = "def launch(module, x, sum, n, rows):\n    module.total[rows, 64](x, sum, n, rows)\n"
PLACES_LAUNCH = "def launch(module, counts, n):\n    module.places[1, 32](counts, n)\n"


def test_the_first_thread_of_a_grid_gets_a_block() -> None:
    *_, found = rewritten(one_thread.rewrite, TOTAL, LAUNCH)
    assert found.label == "without idle threads, 1024 threads in place of one"
    assert found.launch is not None
    assert "total[1, 1024]" in found.launch.text
    assert "Idx.x * " not in found.kernel.text
    x = np.random.default_rng(3).integers(0, 9, 1500).astype(np.int32)
    _, sums = emulated(found.kernel.text, (1, 1), (1024, 1), x, np.zeros(1, np.int32), len(x))
    assert sums[0] == x.sum()


def test_what_a_test_held_is_indented_anew_whatever_ends_its_lines() -> None:
    file, kernel = cuda_kernel(TOTAL.replace("\n", "\r\n"))
    (found,) = unguarded(file, SourceFile(Path("workload.py"), LAUNCH), kernel)
    assert "\n    int own = 0;\n    for (int k" in found.kernel.text
    assert "\n    sum[0] = own;" in found.kernel.text


def test_the_first_threads_of_blocks_get_their_blocks() -> None:
    *_, found = rewritten(one_thread.rewrite, PER_BLOCK, ROWS_LAUNCH)
    assert found.label == "without idle threads, 256 threads in place of one a block"
    assert found.launch is not None
    assert "total[rows, 256]" in found.launch.text
    assert "if (row >= rows) return;" in found.kernel.text
    x = np.random.default_rng(3).integers(0, 9, (3, 300)).astype(np.int32)
    _, sums = emulated(found.kernel.text, (4, 1), (256, 1), x, np.zeros(4, np.int32), 300, 3)
    np.testing.assert_array_equal(sums, [*x.sum(1), 0])


@pytest.mark.parametrize("n", [2500, 1024, 7, 0])
def test_places_by_counts_are_the_sums_ahead_of_each(n: int) -> None:
    *_, found = rewritten(one_thread.rewrite, PLACES, PLACES_LAUNCH)
    counts = np.random.default_rng(3).integers(0, 9, n + 1).astype(np.uint32)
    places = [
        emulated(text, (1, 1), (threads, 1), counts.copy(), n)[0]
        for text, threads in ((PLACES, 32), (found.kernel.text, 1024))
    ]
    np.testing.assert_array_equal(places[0], places[1])


def test_running_sums_of_the_first_thread_go_to_the_grid() -> None:
    running = PLACES.replace("counts[i] = before;\n        before += count;", "before += count; counts[i] = before;")
    inner = running.replace("unsigned int count = counts[i];", "").replace("before += count", "before += counts[i]")
    assert rewritten(grid_scan.rewrite, inner, PLACES_LAUNCH)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("blockIdx.x != 0 || threadIdx.x != 0", "blockIdx.x != 0 && threadIdx.x != 0"),
        ("blockIdx.x != 0 || threadIdx.x != 0", "blockIdx.x != 0"),
        ("blockIdx.x != 0 || threadIdx.x != 0", "blockIdx.x != 0 || threadIdx.x != 1"),
        ("i < n;", "i < n * gridDim.x;"),
        ("before += count;", "before += count + blockDim.x;"),
        ("unsigned int before", "counts[n] = 0; if (threadIdx.x) return; unsigned int before"),
        ("unsigned int count = counts[i];", "float count = counts[i];\n        counts[n] = i;"),
        ("unsigned int before", "float before"),  # what is taken away again is rounded
        ("        unsigned int count = counts[i];\n", ""),  # reads what it has just stored
    ],
)
def test_other_kernels_stay_as_they_are(old: str, new: str) -> None:
    text = PLACES.replace(old, new)
    text = text.replace("before += count;", "before += counts[i];") if "count = " not in text else text
    assert old in PLACES
    assert rewritten(one_thread.rewrite, text, PLACES_LAUNCH) == []
