"""Kernels whose threads add to few elements: one of the whole grid, and those that the data name."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import Rewrite, host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions import block_atomics, shared_bins
from kernel_lsp.source.candidate import Candidate

SUM = """
__global__ void total(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
}
"""
# The thread's own sum comes first; the loop over the grid has a name for its step.
DOT = """
__global__ void dot(const float* a, const float* b, float* out, int n) {
    float own = 0.f;
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) own += a[i] * b[i];
    atomicAdd(&out[0], own);
}
"""
# Each block has an element of its own, to which its threads add in every turn of a loop.
PAIRS = """
#define ITEMS 3
__global__ void pairs(const char* data, float* apart, int length) {
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
        if (data[length * blockIdx.x + i] != data[length * blockIdx.y + i])
            atomicAdd(apart + ITEMS * blockIdx.x + blockIdx.y, 1.0f);
    }
}
"""
# Threads leave early, and one of two branches adds.
COUNT = """
__global__ void count(const float* x, float* counts, int n, float least) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int part = blockIdx.x % 2;
    if (i >= n) return;
    if (x[i] > least) {
        atomicAdd(counts + part, 1.0f);
    }
}
"""
HISTOGRAM = """
__global__ void histogram(const int* data, float* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[data[i]], 1);
}
"""
# Three sums of the whole grid, of several types.
MOMENTS = """
__global__ void moments(const float* x, float* sum, double* square, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float value = x[i];
        atomicAdd(sum, value);
        atomicAdd(square, (double)value * value);
        if (value > 0) atomicAdd(count, 1);
    }
}
"""
# The nearest of a few centres is added to, and counted.
MEANS = """
__global__ void means(const float* x, const float* centres, float* sums, int* counts, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float least = 1e30f;
    int best = 0;
    for (int c = 0; c < k; c++) {
        float far = (x[i] - centres[c]) * (x[i] - centres[c]);
        if (far < least) {
            least = far;
            best = c;
        }
    }
    atomicAdd(&sums[best], x[i]);
    atomicAdd(&counts[best], 1);
}
"""
# The place is worked out ahead of the addition, from a variable without a first value.
LETTERS = """
__global__ void letters(const char* text, int* counts, int n) {
    int place;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        place = text[i] - 'a';
        atomicAdd(&counts[place / 4], 1);
    }
}
"""
LAUNCHES = {
    MOMENTS: "module.moments[(n + 255) // 256, 256](x, s, q, c, n)",
    MEANS: "module.means[(n + 255) // 256, 256](x, y, s, c, n, k)",
    LETTERS: "module.letters[64, 256](x, c, n)",
    SUM: "module.total[(n + 255) // 256, 256](x, out, n)",
    DOT: "module.dot[64, 128](x, y, out, n)",
    COUNT: "module.count[-(-n // 128), (128,)](x, out, n, 0.5)",
    HISTOGRAM: "module.histogram[-(-n // 256), 256](x, out, n)",
}
N = 1000


def candidates(rewrite: Rewrite, text: str, like: str = "") -> list[Candidate]:
    return rewritten(rewrite, text, f"def launch(module, x, y, out, n):\n    {LAUNCHES[like or text]}\n")


def test_one_thread_adds_for_its_block(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal((2, N)).astype(np.float32)
    for one in candidates(block_atomics.rewrite, SUM)[:2]:
        ptx(one.kernel.text)
        out = np.zeros(1, np.float32)
        host_runner(tmp_path, one.kernel.text)(3, 64, a, out, N)
        np.testing.assert_allclose(out[0], a.sum(), rtol=1e-4, atol=1e-4)
    *_, alone = candidates(block_atomics.rewrite, DOT)
    ptx(alone.kernel.text)
    out = np.zeros(1, np.float32)
    host_runner(tmp_path, alone.kernel.text)(3, 64, a, b, out, N)
    np.testing.assert_allclose(out[0], a @ b, rtol=1e-4, atol=1e-4)
    assert "block_reduce(own, " in alone.kernel.text


def test_types_may_have_names() -> None:
    named = "typedef float real;\n" + SUM.replace("float", "real")
    general = SUM.replace("__global__", "template <typename T>\n__global__").replace("float", "T")
    counts = "using Count = int;\n" + HISTOGRAM.replace("float* bins", "Count* bins")
    for one in candidates(block_atomics.rewrite, named, SUM):
        assert "real own_sum = " in one.kernel.text
        ptx(one.kernel.text)
    for text, like in ((named, SUM), (general, SUM)):
        assert len(candidates(block_atomics.rewrite, text, like)) == len(candidates(block_atomics.rewrite, like))
    found = candidates(shared_bins.rewrite, counts, HISTOGRAM)
    assert len(found) == len(candidates(shared_bins.rewrite, HISTOGRAM))
    assert all("__shared__ Count block_bins[BINS];" in one.kernel.text for one in found)


def test_an_element_of_a_block_is_added_to_once(tmp_path: Path) -> None:
    workload = "def launch(module, x, y, n):\n    module.pairs[(3, 3), 64](x, y, n)\n"
    (one,) = rewritten(block_atomics.rewrite, PAIRS, workload)
    ptx(one.kernel.text)
    assert one.kernel.text.count("atomicAdd(apart + ITEMS * blockIdx.x + blockIdx.y, block_sum)") == 1
    assert rewritten(block_atomics.rewrite, PAIRS.replace("+ blockIdx.y, 1", "+ threadIdx.x, 1"), workload) == []
    assert rewritten(block_atomics.rewrite, PAIRS.replace("#define", "// #define"), workload) == []
    x = np.random.default_rng(2).integers(0, 3, (3, 100)).astype(np.int8)
    y = np.zeros((3, 3), np.float32)
    host_runner(tmp_path, one.kernel.text)((3, 3), 64, x, y, 100)
    np.testing.assert_array_equal(y, (x[:, None] != x[None]).sum(2))


def test_threads_that_left_early_come_to_the_end(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal(N).astype(np.float32)
    *_, alone = candidates(block_atomics.rewrite, COUNT)
    assert "    if (i < n) {\n        if (x[i] > least) {\n            own_sum += 1.0f;" in alone.kernel.text
    ptx(alone.kernel.text)
    counts = np.zeros(2, np.float32)
    host_runner(tmp_path, alone.kernel.text)(-(-N // 64), 64, x, counts, N, 0.5)
    block = np.arange(N) // 64 % 2
    np.testing.assert_array_equal(counts, [((x > 0.5) & (block == part)).sum() for part in (0, 1)])


def test_a_few_blocks_for_each_multiprocessor_add_where_the_grid_may_be_smaller() -> None:
    first, second, *_ = candidates(block_atomics.rewrite, SUM)
    loop = "grid-stride loop, 4 blocks for each multiprocessor, one atomic a block"
    assert (first.label, second.label) == (f"{loop}, 128-bit loads and stores", loop)
    assert second.launch
    assert "total[min((n + 255) // 256, 4 * 132), 256]" in second.launch.text


def test_bins_are_counted_in_shared_memory_and_beyond_it(tmp_path: Path) -> None:
    data = np.random.default_rng(2).integers(0, 300, N).astype(np.int32)
    found = candidates(shared_bins.rewrite, HISTOGRAM)
    (one,) = [c for c in found if c.label.endswith("4 blocks for each multiprocessor, 256 sums in shared memory")]
    ptx(one.kernel.text)
    bins = np.zeros(300, np.float32)
    host_runner(tmp_path, one.kernel.text)(2, 64, data, bins, N)
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=300))


def test_several_sums_are_each_added_once_a_block(tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal(N).astype(np.float32)
    *_, alone = candidates(block_atomics.rewrite, MOMENTS)
    ptx(alone.kernel.text)
    assert alone.kernel.text.count("atomicAdd(") == 3
    grid, block = -(-N // 64), 64
    host = alone.kernel.text.replace("atomicAdd(square", "*square +=(").replace("atomicAdd(count", "*count +=(")
    sums = np.zeros(1, np.float32), np.zeros(1, np.float64), np.zeros(1, np.int32)
    host_runner(tmp_path, host.replace("+=(, ", "+= ("))(grid, block, x, *sums, N)
    np.testing.assert_allclose([s[0] for s in sums], [x.sum(), (x * x).sum(), (x > 0).sum()], rtol=1e-4, atol=1e-3)


def test_sums_of_several_arrays_are_counted_together() -> None:
    first, *_ = candidates(shared_bins.rewrite, MEANS)
    ptx(first.kernel.text)
    text = first.kernel.text
    assert "block_sums[bin] = block_counts[bin] = 0;" in text
    assert "atomicAdd(best >= 0 && best < BINS ? &block_sums[best] : &sums[best], x[i]);" in text
    assert "if (block_counts[bin] != 0) atomicAdd(&counts[bin], block_counts[bin]);" in text


def test_a_place_that_is_worked_out_ahead_is_of_the_data() -> None:
    first, *_ = candidates(shared_bins.rewrite, LETTERS)
    ptx(first.kernel.text)
    assert "const auto place2 = place / 4;" in first.kernel.text


def test_arrays_that_do_not_say_const_are_other_arrays() -> None:
    text = SUM.replace("const float* in", "float* in")
    assert [one.label for one in candidates(block_atomics.rewrite, text, SUM)][-1] == "one atomic a block"


def test_the_text_stays_short() -> None:
    *_, alone = candidates(block_atomics.rewrite, SUM)
    assert len(alone.kernel.text.splitlines()) <= len(SUM.splitlines()) + 17
    first, *_ = candidates(shared_bins.rewrite, HISTOGRAM)
    assert len(first.kernel.text.splitlines()) <= len(HISTOGRAM.splitlines()) + 12


@pytest.mark.parametrize(
    ("rewrite", "text", "old", "new"),
    [
        (block_atomics.rewrite, SUM, "atomicAdd(out,", "float old = atomicAdd(out,"),
        (block_atomics.rewrite, SUM, "atomicAdd(out,", "atomicAdd(out + i,"),
        (block_atomics.rewrite, SUM, "atomicAdd(out,", "atomicAdd(&out[threadIdx.x % 4],"),
        (block_atomics.rewrite, SUM, "if (i < n)", "if (i < n && out[0] < 5.0f)"),
        (
            block_atomics.rewrite,
            SUM,
            "if (i < n)",
            "if (in[i] < 0.0f) { return; }\n    if (i > n) return;\n    if (i < n)",
        ),
        (block_atomics.rewrite, DOT, "atomicAdd(", "__syncthreads(); atomicAdd("),
        (block_atomics.rewrite, COUNT, "const int part =", "int part ="),
        (block_atomics.rewrite, MOMENTS, "if (value > 0)", "if (value > 0 && count[0] < 3)"),
        (shared_bins.rewrite, MEANS, "best = c;", "best = i % k;"),
        (shared_bins.rewrite, MEANS, "sums[best]", "sums[i]"),
        (shared_bins.rewrite, HISTOGRAM, "bins[data[i]]", "bins[i]"),
        (shared_bins.rewrite, HISTOGRAM, "bins[data[i]]", "bins[(int)bins[i]]"),
        (shared_bins.rewrite, HISTOGRAM, "if (i < n)", "if (i < n && bins[i] < 9)"),
        (shared_bins.rewrite, HISTOGRAM, "if (i < n)", "__syncthreads(); if (i < n)"),
    ],
)
def test_near_misses_are_left_alone(rewrite: Rewrite, text: str, old: str, new: str) -> None:
    assert old in text
    changed = text.replace(old, new)
    changed = (
        changed.replace("int part = blockIdx.x % 2;", "int part = 0; part += i % 2;") if "part" in old else changed
    )
    assert candidates(rewrite, changed, text) == []


def test_blocks_that_are_no_whole_warps_keep_their_atomics() -> None:
    assert rewritten(block_atomics.rewrite, SUM, "def launch(m, x, y, n):\n    m.total[n // 100, 100](x, y, n)\n") == []
