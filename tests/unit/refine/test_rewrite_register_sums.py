"""Sums that a loop gathers in memory."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.register_sums import rewrite

ROWS, COLUMNS = 5, 70
ROW_SUMS = """
__global__ void row_sums(float* a, float* x, float* y, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) {
        y[i] = 0;
        int j;
        for (j = 0; j < cols; j++) {
            y[i] += a[i * cols + j] * x[j];
        }
        y[i] /= cols;
    }
}
"""
LAUNCH = "def launch(module, a, x, y, n, c):\n    module.row_sums[-(-n // 64), 64](a, x, y, n, c)\n"
SCALED = """
__global__ void scaled(float* a, float* b, float* c, int n, float beta) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n && j < n) {
        c[i * n + j] *= beta;
        #pragma unroll 4
        for (int k = 0; k < n; ++k)
            c[i * n + j] = c[i * n + j] + 2.0f * a[i * n + k] * b[k * n + j];
    }
}
"""
SCALED_LAUNCH = (
    "def launch(module, a, b, c, n):\n    module.scaled[(-(-n // 16), -(-n // 16)), (16, 16)](a, b, c, n, 3.0)\n"
)


def test_a_register_begins_with_what_was_set_just_before(tmp_path: Path) -> None:
    *_, plain = rewritten(rewrite, ROW_SUMS, LAUNCH)
    assert plain.label == "sums in registers"
    assert "float y_sum = 0;" in plain.kernel.text
    assert "y[i] = 0;" not in plain.kernel.text
    ptx(plain.kernel.text)
    draw = np.random.default_rng(2)
    a, x = draw.standard_normal((ROWS, COLUMNS)).astype(np.float32), draw.standard_normal(COLUMNS).astype(np.float32)
    y = np.full(ROWS, 7, np.float32)
    host_runner(tmp_path, plain.kernel.text)(1, 8, a, x, y, ROWS, COLUMNS)
    np.testing.assert_allclose(y, a @ x / COLUMNS, rtol=1e-5, atol=1e-6)


def test_rows_are_shared_out_and_products_tiled_in_the_same_step() -> None:
    labels = [one.label for one in rewritten(rewrite, ROW_SUMS, LAUNCH)]
    assert labels[0] == "sums in registers, one warp a row"
    *tiled, plain = rewritten(rewrite, SCALED, SCALED_LAUNCH)
    assert tiled[-1].label == "sums in registers, tiles of 16 x 16 in shared memory"
    assert "float c_sum = c[i * n + j];\n        #pragma unroll 4" in plain.kernel.text
    for one in (tiled[0], tiled[-1], plain):
        ptx(one.kernel.text)


OWN = [
    ("i < rows", "y[i]"),
    ("(i >= 0) && (i < rows)", "y[i + 3]"),
    ("j0 < cols && i < rows", "y[i * cols + j0]"),
]
SHARED = [
    ("i < rows", "y[i / 2]"),  # two threads have it: one whose loop does not run might write what the other one adds
    ("i >= 0", "y[i]"),  # nothing says that it exists
    ("j0 < cols && i < rows", "y[i * rows + j0]"),
    ("j0 < cols && i < rows", "y[j0]"),
]


def added(condition: str, element: str) -> str:
    """A kernel that only adds to an element, with a condition on its numbers `i` and `j0`."""
    two_axes = "int j0 = threadIdx.x + blockIdx.x * blockDim.x, i = blockIdx.y * blockDim.y + threadIdx.y;"
    number = two_axes if "j0" in condition else "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return f"""
__global__ void added(const float* a, const float* x, float* y, int rows, int cols, int depth) {{
    {number}
    if ({condition}) {{
        for (int k = 0; k < depth; k++) {element} += a[i * depth + k] * x[k];
    }}
}}
"""


@pytest.mark.parametrize(("condition", "element"), [*OWN, *SHARED])
def test_only_an_element_of_the_threads_own_is_written_whether_its_loop_runs_or_not(
    condition: str, element: str
) -> None:
    text = added(condition, element)
    ptx(text)
    done = [one.kernel.text for one in rewritten(rewrite, text) if f"float y_sum = {element};" in one.kernel.text]
    assert bool(done) == ((condition, element) in OWN)
    for one in done:
        ptx(one)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y[i] += a", "y[j] += a"),  # another element in each iteration
        ("y[i] += a[i * cols + j]", "y[i] += y[i + 1] * a[i * cols + j]"),
        ("y[i] += a[i * cols + j]", "y[i] += a[i * cols + (int)x[(int)y[i]]]; y[0] = a[j]"),
        ("y[i] += a[i * cols + j] * x[j];", "y[i] = a[i * cols + j];"),  # nothing is gathered
        ("y[i] += a[i * cols + j] * x[j];", "y[(int)x[0]] += a[j];"),  # an element that memory names
        ("y[i] += a[i * cols + j] * x[j];", "y[i] += a[j]; if (a[j] > 5) return;"),
        ("y[i] += a[i * cols + j] * x[j];", "atomicAdd(&y[i], a[j]);"),
        ("y[i] += a[i * cols + j] * x[j];", "y[i] += a[j]; i += 0;"),
        ("int j;", "x[0] = y[i]; int j;"),
    ],
)
def test_other_loops_are_left_alone(old: str, new: str) -> None:
    text = ROW_SUMS
    for part in old.split("|"):
        assert part in text
        text = text.replace(part, new)
    ptx(text)
    assert all("float y_sum = 0;" not in one.kernel.text for one in rewritten(rewrite, text, LAUNCH))
    if "x[0] = y" not in new:
        assert rewritten(rewrite, text, LAUNCH) == []


# A mean by one thread, in the element that a pointer names.
MEAN = """
__global__ void loss(const float* x, const int* wanted, float* mean, int n, int classes) {
    *mean = 0.0f;
    for (int i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int k = 0; k < classes; k++) sum += x[i * classes + k];
        sum -= x[i * classes + wanted[i]];
        *mean += sum;
    }
    *mean /= n;
}
"""
MEAN_LAUNCH = "def launch(module, x, w, m, n, c):\n    module.loss[1, 1](x, w, m, n, c)\n"


@pytest.mark.parametrize("n", [1, 37, 1500])
def test_an_element_that_a_pointer_names_is_gathered_by_a_block(tmp_path: Path, n: int) -> None:
    found = rewritten(rewrite, MEAN, MEAN_LAUNCH)
    assert [one.label for one in found][-2:] == ["sums in registers, 1024 threads in place of one", "sums in registers"]
    x = np.random.default_rng(1).integers(0, 9, (n, 4)).astype(np.float32)
    wanted = np.random.default_rng(2).integers(0, 4, n).astype(np.int32)
    for one, threads in zip(found[-2:], (64, 1), strict=True):
        ptx(one.kernel.text)
        mean = np.full(1, 7, np.float32)
        host_runner(tmp_path, one.kernel.text)(1, threads, x, wanted, mean, n, 4)
        np.testing.assert_allclose(mean[0], (x.sum() - x[np.arange(n), wanted].sum()) / n, rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("*mean = 0.0f;", "if (n == 0) return;"),  # nothing says whose element it is
        ("sum -= x", "mean += 1; sum -= x"),
        ("*mean += sum;", "*mean += sum; mean[n] = i;"),
        ("*mean += sum;", "*mean += sum; sum = mean[0];"),  # spelled in two ways
    ],
)
def test_an_element_that_a_pointer_names_is_left_alone(old: str, new: str) -> None:
    text = MEAN.replace("    *mean /= n;\n", "").replace(old, new)
    ptx(text)
    assert all("mean_sum" not in one.kernel.text for one in rewritten(rewrite, text, MEAN_LAUNCH))
