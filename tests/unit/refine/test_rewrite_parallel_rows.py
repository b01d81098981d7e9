"""Kernels of one thread a row, in the ways that people write them: a warp or a block a row gives the same results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.parallel_rows import rewrite
from kernel_lsp.source.candidate import Candidate

ROWS, COLUMNS = 6, 77


@dataclass(frozen=True)
class Naive:
    """A kernel, the launch in its workload, and its arguments: arrays by what they are for, or numbers."""

    text: str
    launch: str
    arguments: Sequence[object]


SOFTMAX = Naive(
    """
__global__ void softmax(const float* in, float* out, int n, int c) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    const float* x = in + r * c;
    float* y = out + r * c;
    float largest = x[0];
    for (int i = 1; i < c; i++) {
        largest = max(largest, x[i]);
    }
    float total = 0.f;
    for (int i = 0; i < c; ++i) {
        y[i] = expf(x[i] - largest);
        total = total + y[i];
    }
    for (int i = 0; i < c; i += 1) y[i] = y[i] / total;
}
""",
    "module.softmax[(n + 63) // 64, 64](x, y, n, c)",
    ["in", "out", ROWS, COLUMNS],
)
# Row and column by a macro, a constant for the block, the sums ahead of the guard's end, statistics kept.
LAYERNORM = Naive(
    """
#define AT(row, column) ((row) * width + (column))
#define THREADS 96
__global__ void norm(const float *a, const float *gain, float *b, float *means, float *scales, int height, int width) {
    const int me = threadIdx.x, group = blockIdx.x;
    const int row = group * THREADS + me;
    if (row < height) {
        float mean = 0, variance = 0;
        for (int k = 0; k < width; k++) { mean += a[AT(row, k)]; }
        mean /= width;
        for (int k = 0; k < width; k++) {
            float d = a[AT(row, k)] - mean;
            variance = fmaf(d, d, variance);
        }
        float scale = rsqrtf(variance / width + 1e-5f);
        for (int k = 0; k < width; k++)
            b[AT(row, k)] = (a[AT(row, k)] - mean) * scale * gain[k];
        if (means) means[row] = mean;
        scales[row] = scale;
    }
}
""",
    "module.norm[(-(-a.shape[0] // 96),), (96,)](a, g, b, m, s, a.shape[0], a.shape[1])",
    ["in", "gain", "out", "rows", "rows", ROWS, COLUMNS],
)
# In place, over a grid that may be smaller than the rows, with a counter from outside of the loops.
UNIT_ROWS = Naive(
    """
__global__ void unit_rows(float* data, unsigned rows, unsigned dim, float eps) {
    unsigned j;
    for (unsigned row = blockDim.x * blockIdx.x + threadIdx.x; row < rows; row += blockDim.x * gridDim.x) {
        float squares = eps;
        for (j = 0; j < dim; j++) squares += data[(size_t)row * dim + j] * data[(size_t)row * dim + j];
        float length = sqrtf(squares);
        for (j = 0; j < dim; j++) {
            data[(size_t)row * dim + j] /= length;
        }
    }
}
""",
    "grid, block = 4, 100\n    module.unit_rows[grid, block](x, rows, dim, 1e-6)",
    ["both", ROWS, COLUMNS, 1e-6],
)
# Reads at a place that the row names, and changes what all threads have read.
CROSS_ENTROPY = Naive(
    """
__global__ void cross_entropy(float* logits, float* losses, int V, int B, int T) {
    int idx = threadIdx.x + blockDim.x * blockIdx.x;
    int N = B * T;
    if (idx < N) {
        float* row = &*logits + (idx / T * T + idx % T) * V;
        int target = (idx * 7) % V;
        float peak = -3e38f;
        for (int v = 0; v < V; v++) if (row[v] > peak) peak = row[v];
        double sum = 0.0;
        for (int v = 0; v < V; v++) sum += expf(row[v] - peak);
        losses[idx] = logf((float)sum) + peak - row[target];
        for (int v = 0; v < V; v++) {
            float hit = v == target ? 1.0f : 0.0f;
            row[v] = expf(row[v] - peak) / (float)sum - hit;
        }
        row[target] *= 2.0f;
    }
}
""".replace("&*logits", "logits"),
    "module.cross_entropy[-(-b * t // 128), 128](x, l, v, b, t)",
    ["both", "rows", COLUMNS, 1, ROWS],
)
# Pairs half a row apart; nothing is gathered.
ROTARY = Naive(
    """
__global__ void rotate_pairs(float* x, const float* angles, int rows, int half) {
    int r = blockIdx.x * 32 + threadIdx.x;
    if (r < rows)
        for (int i = 0; i < half; ++i) {
            float c = cosf(angles[i]), s = sinf(angles[i]);
            float first = x[r * 2 * half + i], second = x[r * 2 * half + i + half];
            x[r * 2 * half + i] = first * c - second * s;
            x[r * 2 * half + i + half] = first * s + second * c;
        }
}
""".replace("if (r < rows)\n        for", "if (r >= rows) { return; }\n    for"),
    "module.rotate_pairs[(r + 31) // 32, 32](x, a, r, h)",
    ["both", "gain", ROWS, COLUMNS // 2],
)
# A loop whose rows are of several lengths, inside of another one; short rows of statistics; no limit at all.
CAUSAL = Naive(
    """
__device__ float gate(float v) { return v > 0.0f ? v : 0.1f * v; }
__global__ void causal(const float* scores, float* out, float* best, int c) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int pass = 0; pass < 2; pass++) {
        float low = 1e30f, product = 1.5f;
        for (int j = 0; j <= t + 40; j++) {
            float v = gate(scores[t * c + j]);
            low = v < low ? v : low;
            product *= 1.0f + 0.01f * v;
        }
        for (int j = 0; j <= t + 40; j++) {
            out[t * c + j] = scores[t * c + j] * product - low + pass;
        }
        best[t] = out[t * c + 40];
    }
}
""",
    "module.causal[len(x) // 64, 64](x, y, b, x.shape[1])",
    ["in", "out", "rows", COLUMNS],
)
# Types by names of the file's own, as in sparse products and solvers.
OWN_TYPES = Naive(
    """
#define REAL float
typedef REAL value_t;
using sum_t = double;
__global__ void weigh(const REAL* in, const value_t* gain, value_t* out, int n, int c) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    sum_t dot = 0;
    value_t peak = in[r * c];
    for (int i = 0; i < c; i++) {
        if (in[r * c + i] != (REAL)0) dot += in[r * c + i] * gain[i];
        if (in[r * c + i] > peak) peak = in[r * c + i];
    }
    out[r] = (value_t)dot * peak;
}
""",
    "module.weigh[(n + 63) // 64, 64](x, g, y, n, c)",
    ["in", "gain", "rows", ROWS, COLUMNS],
)
# Running sums: of each row's elements, and then of their squares, which use the first ones in place.
RUNNING = Naive(
    """
__global__ void running(const float* in, float* out, float* totals, int n, int c) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int j = 0; j < c; j++) {
        sum = sum + in[r * c + j];
        out[r * c + j] = sum;
    }
    double squares = 0;
    for (int j = 0; j < c; ++j) {
        int at = r * c + j;
        squares += out[at] * in[at];
        out[at] = (float)squares;
    }
    totals[r] = sum;
}
""",
    "module.running[(n + 63) // 64, 64](x, y, s, n, c)",
    ["in", "out", "rows", ROWS, COLUMNS],
)
KERNELS = {
    "running": RUNNING,
    "own_types": OWN_TYPES,
    "softmax": SOFTMAX,
    "layernorm": LAYERNORM,
    "unit_rows": UNIT_ROWS,
    "cross_entropy": CROSS_ENTROPY,
    "rotary": ROTARY,
    "causal": CAUSAL,
}


def workload(naive: Naive) -> str:
    return f"def launch(module, *given):\n    {naive.launch}\n"


def candidates(naive: Naive, text: str = "") -> list[Candidate]:
    """A warp, and a block, a row."""
    return [one for one in rewritten(rewrite, text or naive.text, workload(naive)) if "," not in one.label]


def values(naive: Naive) -> list[np.ndarray | float]:
    """New arguments, the same for each call."""
    draw = np.random.default_rng(1)
    shapes = {"in": (ROWS, COLUMNS), "out": (ROWS, COLUMNS), "both": (ROWS, COLUMNS), "rows": ROWS, "gain": COLUMNS}
    made: list[np.ndarray | float] = []
    for one in naive.arguments:
        if isinstance(one, str):
            array = draw.standard_normal(shapes[one]).astype(np.float32)
            made.append(np.full_like(array, 7) if one in ("out", "rows") else array)
        else:
            assert isinstance(one, int | float)
            made.append(one)
    return made


@pytest.mark.parametrize("name", KERNELS)
def test_a_warp_and_a_block_a_row_do_the_same(tmp_path: Path, name: str) -> None:
    naive = KERNELS[name]
    right = values(naive)
    host_runner(tmp_path, naive.text)((1, 1), (ROWS, 1), *right)
    found = candidates(naive)
    assert [one.label for one in found] == ["one warp a row", "one block a row"]
    for one in found:
        ptx(one.kernel.text)
        given = values(naive)
        spare = 0 if naive is CAUSAL else 1  # more rows than there are, where the kernel has a limit
        grid = (ROWS // 2 if one.label == "one warp a row" else ROWS) + spare
        host_runner(tmp_path, one.kernel.text)((grid, 1), (64, 1), *given)
        for new, old in zip(given, right, strict=True):
            np.testing.assert_allclose(new, old, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "warp", "block"),
    [
        ("softmax", "[-(-n // 2), 64]", "[n, 64]"),
        ("layernorm", "[(-(-a.shape[0] // 3),), (96,)]", "[(a.shape[0],), (96,)]"),
        ("unit_rows", "grid, block = -(-rows // 4), 128", "grid, block = rows, 128"),
        ("cross_entropy", "[-(-(b * t) // 4), 128]", "[b * t, 128]"),
        ("causal", "[(len(x) // 64) * 32, 64]", "[(len(x) // 64) * 64, 64]"),
    ],
)
def test_the_launch_has_a_team_for_each_row(name: str, warp: str, block: str) -> None:
    texts = [one.launch.text for one in candidates(KERNELS[name]) if one.launch]
    for text, wanted in zip(texts, (warp, block), strict=True):
        assert wanted in text


def test_rows_that_nothing_limits_are_not_rounded_up_to_whole_blocks() -> None:
    launched = "def launch(module, x, y, b):\n    module.causal[1, len(x)](x, y, b, x.shape[1])\n"
    block, *others = rewritten(rewrite, CAUSAL.text, launched)
    assert all(one.label.startswith("one block a row") for one in (block, *others))
    assert block.launch
    assert "[1 * len(x), 128]" in block.launch.text


def test_host_code_beside_the_kernel_is_changed_along() -> None:
    host = """
void run_softmax(const float* in, float* out, int rows, int cols, int block_size) {
    dim3 grid((rows + block_size - 1) / block_size);
    softmax<<<grid, block_size>>>(in, out, rows, cols);
}
"""
    warp, block, *_ = rewritten(rewrite, SOFTMAX.text + host)
    assert "dim3 grid((rows + 3) / 4);" in warp.kernel.text
    assert "softmax<<<grid, 128>>>" in warp.kernel.text
    assert "dim3 grid(rows);" in block.kernel.text


def test_what_a_row_writes_once_is_written_by_one_thread() -> None:
    warp, block = candidates(LAYERNORM)
    once = "if (lane == 0) {\n            if (means) means[row] = mean;\n            scales[row] = scale;"
    assert once in warp.kernel.text
    assert "if (threadIdx.x == 0) {" in block.kernel.text
    assert "int me" not in warp.kernel.text


def test_threads_meet_before_they_read_what_another_wrote() -> None:
    warp, block = candidates(CROSS_ENTROPY)
    assert warp.kernel.text.count("__syncwarp();") == 2  # ahead of the gradient, and of the target's own element
    assert block.kernel.text.count("\n        __syncthreads();") == 2
    assert not any("__syncwarp" in one.kernel.text for one in candidates(LAYERNORM))


def test_rewrites_of_rows_follow_in_the_same_step(tmp_path: Path) -> None:
    text = LAYERNORM.text.replace("float mean = 0,", "const float* from = a + row * width;\n        float mean = 0,")
    text = text.replace("a[AT(row, k)]", "from[k]")
    found = rewritten(rewrite, text, workload(LAYERNORM))
    (kept,) = [one for one in found if one.label == "one warp a row, 128-bit loads, 2 vectors of the row in registers"]
    ptx(kept.kernel.text)
    right, given = values(LAYERNORM), values(LAYERNORM)
    host_runner(tmp_path, LAYERNORM.text)((1, 1), (ROWS, 1), *right)
    host_runner(tmp_path, kept.kernel.text)((ROWS // 2, 1), (64, 1), *given)
    for new, old in zip(given, right, strict=True):
        np.testing.assert_allclose(new, old, rtol=2e-5, atol=2e-6)


def test_the_text_grows_little() -> None:
    for naive in KERNELS.values():
        warp, block = candidates(naive)
        lines = len(naive.text.splitlines())
        assert len(warp.kernel.text.splitlines()) <= 1.4 * lines + 10
        assert len(block.kernel.text.splitlines()) <= 1.4 * lines + 16


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        # What one iteration leaves for the next
        ("softmax", "total = total + y[i];\n", "total = total + y[i]; total *= y[i];\n"),
        ("softmax", "y[i] = y[i] / total;", "y[i] = y[i - 1] / total;"),
        ("softmax", "y[i] = y[i] / total;", "y[i / 2] = x[i] / total;"),
        ("softmax", "y[i] = y[i] / total;", "y[i] = (total *= 0.5f);"),
        ("softmax", "largest = max(largest, x[i]);", "largest = max(largest, x[i]) - 1;"),
        ("layernorm", "mean += a[AT(row, k)]; }", "mean += a[AT(row, k)]; seen[k % 2]++; }"),
        ("layernorm", "mean += a[AT(row, k)]; }", "mean += a[AT(row, k)]; pair.x += mean; }"),
    ],
)
def test_loops_that_depend_on_their_order_are_not_shared_out(name: str, old: str, new: str) -> None:
    naive = KERNELS[name]
    assert old in naive.text
    before = [one.kernel.text.count("+= 32)") for one in candidates(naive)]
    text = naive.text.replace(old, new)
    text = text.replace("float mean = 0,", "int seen[2] = {0, 0}; float2 pair; pair.x = 0; float mean = 0,")
    ptx(text)
    after = [one.kernel.text.count("+= 32)") for one in candidates(naive, text)]
    assert after == [] or after[0] < before[0]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("softmax", "if (r >= n) return;", "if (r >= n) return; out[threadIdx.x] = 0;"),
        ("softmax", "if (r >= n) return;", "out[0] = 1; if (r >= n) return;"),
        ("softmax", "if (r >= n) return;", "__shared__ float s[2]; if (r >= n) return;"),
        ("softmax", "if (r >= n) return;", "if (r >= n) return; __syncthreads();"),
        ("softmax", "if (r >= n) return;", 'if (r >= n) return; printf("%d", r);'),
        ("softmax", "float* y = out + r * c;", "float* y = r % 2 ? out + r * c : (float*)in;"),
        ("unit_rows", "blockDim.x * gridDim.x", "blockDim.x"),
        ("unit_rows", "+ threadIdx.x;", "+ threadIdx.y;"),
        ("rotary", "i + half]", "i + half - 1]"),
        ("rotary", "i < half", "i <= half"),
    ],
)
def test_other_kernels_are_left_alone(name: str, old: str, new: str) -> None:
    naive = KERNELS[name]
    assert old in naive.text
    text = naive.text.replace(old, new)
    if "printf" not in new:
        ptx(text)
    assert rewritten(rewrite, text, workload(naive)) == []


def test_a_template_gathers_in_its_own_type() -> None:
    text = SOFTMAX.text.replace("__global__", "template <typename T>\n__global__").replace(
        "float total = 0.f", "T total = 0"
    )
    warp, *_ = rewritten(
        rewrite, text, "def launch(module, x, y, n, c):\n    module['softmax<float>'][n, 64](x, y, n, c)\n"
    )
    assert "total = warp_reduce(total, [](T a, T b) { return a + b; });" in warp.kernel.text


def test_rows_that_neighbouring_threads_read_together_are_left_alone() -> None:
    text = SOFTMAX.text.replace("in + r * c", "in + r").replace("out + r * c", "out + r").replace("[i]", "[i * n]")
    ptx(text)
    assert rewritten(rewrite, text, workload(SOFTMAX)) == []


@pytest.mark.parametrize(
    "launch", ["module.softmax[sizes(n)](x, y, n, c)", "pass", "module.softmax[1, (8, 8)](x, y, n, c)"]
)
def test_a_launch_that_is_not_understood_keeps_the_kernel(launch: str) -> None:
    assert rewritten(rewrite, SOFTMAX.text, f"def launch(module, x, y, n, c):\n    {launch}\n") == []


SPARSE = """
__global__ void spmv(const int* starts, const int* columns, const float* values, const float* x, float* y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float sum = 0.0f;
        for (int j = starts[row]; j < starts[row + 1]; j++) {
            sum += values[j] * x[columns[j]];
        }
        y[row] = sum;
    }
}
"""
GATHER = """
__global__ void gather(const int* ids, const float* table, float* out, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        for (int k = 0; k < width; k++) __stcs(out + i * width + k, table[ids[i] * width + k]);
}
"""


def test_rows_that_begin_where_an_array_says_are_shared_out(tmp_path: Path) -> None:
    launch = "def launch(module, s, c, v, x, y, n):\n    module.spmv[-(-n // 64), 64](s, c, v, x, y, n)\n"
    warp, *_ = rewritten(rewrite, SPARSE, launch)
    ptx(warp.kernel.text)
    assert "for (int j = starts[row] + lane; j < starts[row + 1]; j += 32)" in warp.kernel.text
    draw = np.random.default_rng(6)
    dense = draw.standard_normal((ROWS, COLUMNS)).astype(np.float32) * (draw.random((ROWS, COLUMNS)) < 0.5)
    dense[1] = 0
    rows, columns = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(ROWS + 1)).astype(np.int32)
    x, y = draw.standard_normal(COLUMNS).astype(np.float32), np.full(ROWS, 7, np.float32)
    values = dense[rows, columns].astype(np.float32)
    host_runner(tmp_path, warp.kernel.text)(ROWS // 2 + 1, 64, starts, columns.astype(np.int32), values, x, y, ROWS)
    np.testing.assert_allclose(y, dense @ x, rtol=1e-4, atol=1e-5)


def test_a_loop_without_braces_round_it_is_shared_out() -> None:
    launch = "def launch(module, i, t, o):\n    module.gather[-(-len(i) // 64), 64](i, t, o, len(i), t.shape[1])\n"
    warp, *_ = rewritten(rewrite, GATHER, launch)
    ptx(warp.kernel.text)
    assert "if (i < n)\n        for (int k = lane; k < width; k += 32) __stcs(" in warp.kernel.text
    assert rewritten(rewrite, GATHER.replace("ids[i] * width + k]", "ids[i] * width + k] + out[i]"), launch) == []
