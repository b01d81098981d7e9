"""Kernels of one thread a column, in the ways that people write them."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.split_columns import rewrite
from kernel_lsp.source.candidate import Candidate

ROWS, COLUMNS = 45, 21

BIAS = """
__global__ void bias_grad(const float* dout, float* dbias, int N, int OC) {
    // each thread sums one column
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o < OC) {
        double sum = 0.0;
        for (int i = 0; i < N; i++) {
            sum += dout[i * OC + o];
        }
        dbias[o] += sum;
    }
}
"""
# Two sums in one loop, values of the row, and an early return.
NORM_BACKWARD = """
__global__ void backward(const float *dy, const float *x, float *dgain, float *dshift, int rows, unsigned cols) {
    unsigned tid = threadIdx.x;
    unsigned c = blockIdx.x * 64 + tid;
    if (c >= cols) return;
    float gain = 0.f, shift = 0.f;
    for (int r = 0; r < rows; ++r) {
        const float *grad = dy + (size_t)r * cols;
        gain = fmaf(grad[c], x[r * cols + c] - 0.5f, gain);
        shift += grad[c];
    }
    dgain[c] = gain;
    dshift[c] = shift;
}
"""
# One pass after another; a macro; largest and smallest.
SPREAD = """
#define E(r, c) m[(r) * k + (c)]
__global__ void spread(const float* __restrict__ m, float* out, float* means, int n, int k) {
    const int c = blockDim.x * blockIdx.x + threadIdx.x;
    if (c < k) {
        float hi = E(0, c), lo = hi, mean = 0;
        for (int r = 1; r < n; r++) {
            if (E(r, c) > hi) hi = E(r, c);
            lo = fminf(lo, E(r, c));
        }
        for (int r = 0; r < n; r++) mean += (E(r, c) - lo) / (hi - lo + 1.0f);
        out[c] = hi - lo;
        means[c] = mean / n;
    }
}
"""


def launch(name: str, arguments: str, grid: str = "(k + 63) // 64, 64") -> str:
    return f"def launch(module, x, y, z, n, k):\n    module.{name}[{grid}]({arguments})\n"


# Statistics of a column, and then its elements: in place, with a stride that only the arguments know.
NORMALIZED = """
__global__ void normalize(float* x, const float* gain, int n, int c) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= c) return;
    float mean = 0.0f, var = 0.0f;
    for (int i = 0; i < n; i++) mean += x[i * c + j];
    mean /= n;
    for (int i = 0; i < n; i++) {
        float d = x[i * c + j] - mean;
        var += d * d;
    }
    for (int i = 0; i < n; i++)
        x[i * c + j] = gain[j] * (x[i * c + j] - mean) * rsqrtf(var / n + 1e-5f);
}
"""
WORKLOADS = {
    BIAS: launch("bias_grad", "x, y, n, k"),
    NORM_BACKWARD: launch("backward", "x, x, y, z, n, k", "-(-k // 64), (64,)"),
    SPREAD: launch("spread", "x, y, z, n, k", "(k + 63) // 64, 64"),
    NORMALIZED: launch("normalize", "x, y, n, k"),
}


def candidates(text: str) -> list[Candidate]:
    (workload,) = (w for t, w in WORKLOADS.items() if t.split("(")[0] == text.split("(")[0])
    return rewritten(rewrite, text, workload)


def arguments(text: str) -> list[np.ndarray | float]:
    draw = np.random.default_rng(2)
    x, other = (draw.standard_normal((ROWS, COLUMNS)).astype(np.float32) for _ in range(2))
    y, z = np.full(COLUMNS + 3, 2, np.float32), np.full(COLUMNS + 3, 2, np.float32)
    arrays = {BIAS: [x, y], NORM_BACKWARD: [x, other, y, z], SPREAD: [x, y, z], NORMALIZED: [x, y]}[text]
    return [*arrays, ROWS, COLUMNS]


@pytest.mark.parametrize("text", WORKLOADS, ids=["bias", "norm_backward", "spread", "normalized"])
def test_many_threads_a_column_do_the_same(tmp_path: Path, text: str) -> None:
    right = arguments(text)
    host_runner(tmp_path, text)(1, COLUMNS, *right)
    found = candidates(text)
    assert [one.label.split(" ")[0] for one in found] == ["64", "32", "32"]
    assert len({one.kernel.text for one in found}) == 1
    ptx(found[0].kernel.text)
    given = arguments(text)
    host_runner(tmp_path, found[0].kernel.text)(-(-COLUMNS // 8), (8, 8), *given)
    for new, old in zip(given, right, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)


def test_the_launch_covers_the_columns() -> None:
    texts = [one.launch.text for one in candidates(BIAS) if one.launch]
    assert "[-(-k // 8), (8, 64)]" in texts[0]
    assert "[-(-k // 32), (32, 32)]" in texts[2]
    host = "\nvoid run(float* a, float* b, int rows, int c) { bias_grad<<<(c + 255) / 256, 256>>>(a, b, rows, c); }\n"
    (found, *_) = rewritten(rewrite, BIAS + host)
    assert "bias_grad<<<(c + 7) / 8, dim3(8, 64)>>>" in found.kernel.text


def test_threads_past_the_last_column_write_no_elements() -> None:
    text = candidates(NORMALIZED)[0].kernel.text
    assert "for (int i = threadIdx.y; i < n && column < c; i += blockDim.y)\n        x[i * c + j] = gain[j]" in text
    assert "for (int i = threadIdx.y; i < n; i += blockDim.y) mean += x[i * c + j];" in text
    unknown = launch("normalize", "x, y, n, int(k)")
    assert rewritten(rewrite, NORMALIZED.replace("j >= c", "j >= c * 1 / 1"), unknown) == []


def test_the_test_of_the_number_goes_as_all_threads_must_meet() -> None:
    text = candidates(BIAS)[0].kernel.text
    assert "if (o < OC)" not in text
    assert "\n    double sum = 0.0;\n    for (int i = threadIdx.y; i < N; i += blockDim.y) {\n        sum +=" in text
    assert "if (threadIdx.y == 0 && column < OC) dbias[o] += sum;" in text
    assert "return;" not in candidates(NORM_BACKWARD)[0].kernel.text


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (BIAS, "i * OC + o", "o * N + i"),  # a row for each thread
        (BIAS, "sum += dout", "sum = 0.5 * sum + dout"),
        (BIAS, "sum += dout[i * OC + o];", "sum += dout[i * OC + o]; dbias[i / 2 * OC + o] = 0;"),
        (NORMALIZED, "(x[i * c + j] - mean) * r", "(x[i * c + j + 1] - mean) * r"),  # another column's element
        (NORMALIZED, "x[i * c + j] = g", "x[i * (c - 1) + j] = g"),  # columns that may meet
        (NORMALIZED, "x[i * c + j] = g", "if (x[i * c] > 0) x[i * c + j] = g"),  # an element of the first column
        (BIAS, "i < N; i++", "i < 16; i++"),
        (BIAS, "if (o < OC) {", "if (o < OC && N > 3) {"),
        (BIAS, "if (o < OC) {", "{"),
        (BIAS, "if (o < OC) {", "if (o < OC) { if (dbias[o] == 0) return;"),
        (BIAS, "for (int", "if (dbias[o] > 0) for (int"),
        (BIAS, "for (int", "for (int k = 0; k < 2; k++) for (int"),
        (BIAS, "dbias[o] += sum;", "dbias[o] += sum + blockDim.x;"),
        (SPREAD.replace("const float* __restrict__", "float*"), "lo = fminf(lo, E(r, c));", "E(r - 1, c) = 0;"),
        (SPREAD, "out[c] = hi - lo;", "out[c] = hi - lo; __syncthreads();"),
    ],
)
def test_near_misses_are_left_alone(text: str, old: str, new: str) -> None:
    assert old in text
    changed = text.replace(old, new)
    ptx(changed)
    assert candidates(changed) == []
