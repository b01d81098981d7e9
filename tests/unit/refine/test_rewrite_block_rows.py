"""Kernels that give a row to a warp: the lanes of one numbered by cooperative groups and by hand."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.block_rows import rewrite
from kernel_lsp.source.candidate import Candidate

ROWS, COLUMNS = 5, 150

# A function that gets the warp, an online sum, one lane's work, and a loop that writes what another lane has read.
GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
struct Scale { float largest, total; };

__device__ Scale scale_of(cg::thread_block_tile<32>& warp, const float* row, int width) {
    float largest = -1e30f;
    float total = 0.0f;
    for (int i = warp.thread_rank(); i < width; i += warp.size()) {
        float before = largest;
        largest = fmaxf(largest, row[i]);
        total = total * expf(before - largest) + expf(row[i] - largest);
    }
    float of_all = cg::reduce(warp, largest, cg::greater<float>{});
    total *= expf(largest - of_all);
    return Scale{of_all, cg::reduce(warp, total, cg::plus<float>{})};
}

__global__ void loss(float* gradient, float* losses, const float* x, int rows, int width) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (row >= rows) { return; }  // none left
    Scale scale = scale_of(warp, x + row * width, width);
    if (warp.thread_rank() == 0) {
        losses[row] = logf(scale.total) + scale.largest - x[row * width + row];
    }
    for (int i = warp.thread_rank(); i < width; i += warp.size()) {
        float hit = i == row ? 1.0f : 0.0f;
        gradient[row * width + i] = expf(x[row * width + i] - scale.largest) / scale.total - hit;
    }
}
"""
# Lanes by hand, a function with a loop of shuffles, a loop of them in place, and a grid without a limit.
BY_HAND = """
__device__ float warp_max(float value) {
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, o));
    return value;
}
__global__ void spread(float* __restrict__ out, const float* __restrict__ x, int width) {
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x / 32;
    const int row = blockIdx.x * (blockDim.x / 32) + warp;
    float sum = 0.f, largest = -1e30f;
    for (int i = lane; i < width; i += 32) {
        sum += x[row * width + i];
        largest = fmaxf(largest, x[row * width + i]);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    }
    largest = warp_max(largest);
    for (int i = lane; i < width; i += warpSize) {
        out[row * width + i] = (x[row * width + i] - sum / width) / largest;
    }
}
"""
LAUNCHES = {
    GROUPS: "module.loss[(rows + 3) // 4, 128](g, l, x, rows, x.shape[1])",
    BY_HAND: "module.spread[len(x) // 4, 128](y, x, x.shape[1])",
}


def workload(text: str) -> str:
    return f"def launch(module, g, l, x, y, rows):\n    {LAUNCHES[text]}\n"


def candidates(text: str, like: str = "") -> list[Candidate]:
    return rewritten(rewrite, text, workload(like or text))


def draw() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def test_a_block_a_row_gives_the_loss_and_its_gradient(tmp_path: Path) -> None:
    x = draw()
    probabilities = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    losses, gradient = -np.log(probabilities[np.arange(ROWS), np.arange(ROWS)]), probabilities - np.eye(ROWS, COLUMNS)
    found = candidates(GROUPS)
    for one in (found[0], found[-1]):
        ptx(one.kernel.text)
        gave, lost = np.zeros_like(x), np.zeros(ROWS, np.float32)
        host_runner(tmp_path, one.kernel.text)(ROWS + 1, 64, gave, lost, x, ROWS, COLUMNS)
        np.testing.assert_allclose(gave, gradient, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(lost, losses, rtol=1e-5)


def test_lanes_that_are_numbered_by_hand_become_threads_of_a_block(tmp_path: Path) -> None:
    x = draw()
    found = candidates(BY_HAND)
    for one in (found[0], found[-1]):
        ptx(one.kernel.text)
        y = np.zeros_like(x)
        host_runner(tmp_path, one.kernel.text)(ROWS, 96, y, x, COLUMNS)
        mean, largest = x.mean(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
        np.testing.assert_allclose(y, (x - mean) / largest, rtol=1e-4, atol=1e-5)


def test_the_launch_has_a_block_for_each_row() -> None:
    first, second, *_ = candidates(GROUPS)
    assert first.launch
    assert "loss[rows, 1024]" in first.launch.text
    assert second.launch
    assert "loss[rows, 256]" in second.launch.text
    first, *_ = candidates(BY_HAND)
    assert first.launch
    assert "spread[(len(x) // 4) * 4, 1024]" in first.launch.text


def test_wide_loads_follow_in_the_function_that_gets_the_row_and_in_the_kernel() -> None:
    *_, function, both = candidates(GROUPS)
    assert function.label == "one block of 1024 threads a row, 128-bit loads in scale_of"
    assert function.kernel.text.count("reinterpret_cast<const float4*>") == 1
    assert both.label == f"{function.label}, 128-bit loads and stores"
    assert both.kernel.text.count("reinterpret_cast<const float4*>") == 2


def test_threads_meet_before_they_write_what_others_read() -> None:
    first, *_ = candidates(GROUPS)
    assert first.kernel.text.count("\n    __syncthreads();\n    for (int i = threadIdx.x") == 1
    restricted = GROUPS.replace("float* gradient", "float* __restrict__ gradient")
    restricted = restricted.replace("float* losses", "float* __restrict__ losses")
    first, *_ = candidates(restricted, GROUPS)
    assert "__syncthreads();\n    for (int i = threadIdx.x" not in first.kernel.text


def test_nothing_of_the_warp_is_left() -> None:
    first, *_ = candidates(GROUPS)
    assert "tiled_partition" not in first.kernel.text
    assert "Scale scale_of(const float* row, int width)" in first.kernel.text
    assert len(first.kernel.text.splitlines()) <= len(GROUPS.splitlines()) + 15
    first, *_ = candidates(BY_HAND)
    assert "const int warp =" not in first.kernel.text
    assert "const int lane = threadIdx.x;" in first.kernel.text


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (GROUPS, "float total = 0.0f", "float total = 0.01f"),  # more threads would add more of it
        (GROUPS, "total *= expf(largest - of_all);", "total += 1.0f;"),
        (GROUPS, "if (warp.thread_rank() == 0)", "if (warp.thread_rank() < 2)"),
        (GROUPS, "losses[row] =", "losses[row + warp.thread_rank()] ="),
        (GROUPS, "Scale scale = scale_of", "Scale scale = {0, 0}; if (width > 3) scale = scale_of"),
        (GROUPS, "    Scale scale =", "    atomicAdd(losses, 1.0f);\n    Scale scale ="),
        (GROUPS, "    Scale scale =", "    losses[row] += 1.0f;\n    Scale scale ="),
        (GROUPS, "    Scale scale =", "    warp.match_any(row);\n    Scale scale ="),
        (
            GROUPS,
            "__global__ void loss",
            "__device__ void again(W& w) { scale_of(w, 0, 1); }\n__global__ void loss",
        ),
        (BY_HAND, "int i = lane; i < width; i += 32", "int i = lane; i < width; i += 64"),
        (BY_HAND, "int i = lane; i < width; i += 32", "int i = lane + 1; i < width; i += 32"),
        (BY_HAND, "sum += x[row * width + i];", "sum += x[row * width + i] * lane;"),
        (BY_HAND, "+ warp;", "+ warp + 1;"),
        (BY_HAND, "largest = warp_max(largest);", "largest = __shfl_sync(~0u, largest, 3);"),
        (BY_HAND, "float sum = 0.f,", "__shared__ float s[32]; float sum = 0.f,"),
    ],
)
def test_near_misses_are_left_alone(text: str, old: str, new: str) -> None:
    assert old in text
    assert candidates(text.replace(old, new), text) == []


def test_a_block_of_unknown_size_needs_a_limit() -> None:
    launch = "def launch(module, x, y, threads):\n    module.spread[len(x), threads](y, x, x.shape[1])\n"
    assert rewritten(rewrite, BY_HAND, launch) == []
