from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.warp_shuffle import rewrite

ROW_STATISTICS = """
__global__ void row_statistics(const float* x, float* y, int cols) {
    __shared__ float sums[1024];
    __shared__ float squares[1024];
    const unsigned tid = threadIdx.x;
    float sum = 0.0f, square = 0.0f, peak = -3.0e38f;
    for (int c = tid; c < cols; c += blockDim.x) {
        float v = x[blockIdx.x * cols + c];
        sum += v;
        square += v * v;
        peak = fmaxf(peak, v);
    }
    sums[tid] = sum;
    squares[tid] = square;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) {
            sums[tid] += sums[tid + s];
            squares[tid] = squares[tid] + squares[s + tid];  // of squares
        }
        __syncthreads();
    }
    float mean = sums[0] / cols, variance = squares[0] / cols - mean * mean;
    __syncthreads();
    sums[tid] = peak;
    __syncthreads();
    for (unsigned s = blockDim.x >> 1; s > 0; s = s / 2) {
        if (tid < s) sums[tid] = fmaxf(sums[tid], sums[tid + s]);
        __syncthreads();
    }
    y[(blockIdx.x * blockDim.x + tid) * 3] = mean;
    y[(blockIdx.x * blockDim.x + tid) * 3 + 1] = variance;
    y[(blockIdx.x * blockDim.x + tid) * 3 + 2] = sums[0];
}
"""
TREE = """
__global__ void f(const float* x, float* y, int n) {{
    __shared__ float a[256];
    int t = threadIdx.x;
    a[t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (int s = {start}; s > 0; s >>= 1) {{
        if ({guard}) {step}
        {barrier}
    }}
    if (t == 0) y[0] = a[0];
}}
"""
GOOD = {"start": "blockDim.x / 2", "guard": "t < s", "step": "a[t] += a[t + s];", "barrier": "__syncthreads();"}


def test_uses_shuffles() -> None:
    (candidate,) = rewritten(rewrite, ROW_STATISTICS)
    before, after = ptx(ROW_STATISTICS), ptx(candidate.kernel.text)
    assert "shfl.sync.bfly" in after
    assert "shfl" not in before
    assert "for (unsigned s" not in candidate.kernel.text


@pytest.mark.parametrize("block", [32, 64, 256])
def test_every_thread_gets_the_result(tmp_path: Path, block: int) -> None:
    (candidate,) = rewritten(rewrite, ROW_STATISTICS)
    x = np.random.default_rng(block).standard_normal((2, 300)).astype(np.float32)
    y = np.full((2, block, 3), np.nan, np.float32)
    host_runner(tmp_path, candidate.kernel.text)(2, block, x, y, 300)
    for row in range(2):
        expected = [x[row].mean(), x[row].var(), x[row].max()]
        np.testing.assert_allclose(y[row], np.tile(expected, (block, 1)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", [{}, {"start": "128"}, {"guard": "t > s"}, {"step": "a[t] -= a[t + s];"}], ids=str)
def test_only_the_textbook_tree(change: dict[str, str]) -> None:
    source = TREE.format(**(GOOD | change))
    ptx(source)
    assert len(rewritten(rewrite, source)) == (not change)


def test_the_barrier_may_come_first() -> None:
    source = TREE.format(start="blockDim.x / 2", guard="t < s", step="a[t] += a[t + s];", barrier="")
    source = source.replace("s >>= 1) {", "s >>= 1) { __syncthreads();")
    (candidate,) = rewritten(rewrite, source)
    ptx(candidate.kernel.text)


def test_a_loop_without_its_barrier_is_left_alone() -> None:
    assert rewritten(rewrite, TREE.format(**(GOOD | {"barrier": "a[t] *= 1.0f;"}))) == []


GROWING = """
__global__ void f(const float* x, float* y, int n) {{
    extern __shared__ float a[];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned int s = {start}; s < blockDim.x; {update}) {{
        if ({guard}) {{
            a[t] += a[t + s];
        }}
        __syncthreads();
    }}
    if (t == 0) y[blockIdx.x] = a[0];
}}
""".replace("extern __shared__ float a[]", "__shared__ float a[1024]")


@pytest.mark.parametrize(
    "form",
    [
        ("s *= 2", "i % (2 * s) == 0"),
        ("s *= 2", "t % (2 * s) == 0"),
        ("s <<= 1", "(t & (2 * s - 1)) == 0"),
        ("s += s", "t % (s * 2) == 0"),
    ],
)
def test_a_tree_that_begins_with_neighbours_becomes_shuffles_too(form: tuple[str, str]) -> None:
    (candidate,) = rewritten(rewrite, GROWING.format(start="1", update=form[0], guard=form[1]))
    assert "t % (" not in candidate.kernel.text
    assert "float a_value = i < n ? x[i] : 0.0f;" in candidate.kernel.text


def test_a_tree_that_begins_with_neighbours_has_the_same_sums(tmp_path: Path) -> None:
    (candidate,) = rewritten(rewrite, GROWING.format(start="1", update="s *= 2", guard="t % (2 * s) == 0"))
    ptx(candidate.kernel.text)
    x, y = np.random.default_rng(5).standard_normal(150).astype(np.float32), np.zeros(2, np.float32)
    host_runner(tmp_path, candidate.kernel.text)(2, 128, x, y, 150)
    np.testing.assert_allclose(y, [x[:128].sum(), x[128:].sum()], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "form",
    [
        ("2", "s *= 2", "t % (2 * s) == 0"),
        ("1", "s *= 4", "t % (2 * s) == 0"),
        ("1", "s *= 2", "t % s == 0"),
        ("1", "s *= 2", "t % (2 * s) == 1"),
        ("1", "s *= 2", "n % (2 * s) == 0"),
    ],
)
def test_another_tree_that_begins_with_neighbours_is_left_alone(form: tuple[str, str, str]) -> None:
    assert rewritten(rewrite, GROWING.format(start=form[0], update=form[1], guard=form[2])) == []


NUMBERED = GROWING.replace("if ({guard}) {{", "int at = 2 * s * threadIdx.x;\n        if ({guard}) {{").replace(
    "a[t] += a[t + s]", "a[at] += a[at + s]"
)


def test_a_tree_of_the_first_threads_has_the_same_sums(tmp_path: Path) -> None:
    text = NUMBERED.format(start="1", update="s *= 2", guard="at < blockDim.x")
    (candidate,) = rewritten(rewrite, text)
    ptx(candidate.kernel.text)
    x = np.random.default_rng(7).standard_normal(150).astype(np.float32)
    y, right = np.zeros(2, np.float32), np.zeros(2, np.float32)
    host_runner(tmp_path, text)(2, 128, x, right, 150)
    host_runner(tmp_path, candidate.kernel.text)(2, 128, x, y, 150)
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2 * s * threadIdx.x", "s * threadIdx.x"),
        ("2 * s * threadIdx.x", "2 * s * i"),
        ("at < blockDim.x", "at < n"),
        ("a[at + s]", "a[t + s]"),
        ("at < blockDim.x", "t < blockDim.x"),
    ],
)
def test_another_tree_of_the_first_threads_is_left_alone(old: str, new: str) -> None:
    text = NUMBERED.format(start="1", update="s *= 2", guard="at < blockDim.x")
    assert old in text
    assert rewritten(rewrite, text.replace(old, new)) == []


def test_the_threads_number_may_be_called_by_any_of_its_names() -> None:
    text = TREE.format(**(GOOD | {"guard": "threadIdx.x < s"}))
    (candidate,) = rewritten(rewrite, text)
    ptx(candidate.kernel.text)
    assert "float a_value = t < n ? x[t] : 0.0f;" in candidate.kernel.text
