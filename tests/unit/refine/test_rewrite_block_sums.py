"""Blocks that add up their part of an array step by step in memory."""

import numpy as np
import pytest
from rewrite_support import cuda_kernel, emulated, rewritten

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.block_run import BlockRun
from kernel_lsp.refine.rewrites.reductions.block_sums import rewrite

NEIGHBOURS = """
__global__ void total(int* data, int* sums, unsigned int n) {
    unsigned int t = threadIdx.x;
    if (t >= n) return;
    int* mine = data + blockIdx.x * blockDim.x;
    for (int distance = 1; distance < blockDim.x; distance *= 2) {
        if (t % (2 * distance) == 0) {
            mine[t] += mine[t + distance];
        }
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = mine[0];
}
"""
PAIRS_FIRST = """
__global__ void total(int* data, int* sums, unsigned int n) {
    unsigned int t = threadIdx.x;
    unsigned int i = blockDim.x * blockIdx.x * 2 + threadIdx.x;
    int* mine = data + blockIdx.x * blockDim.x * 2;
    if (i + blockDim.x < n) data[i] += data[i + blockDim.x];
    __syncthreads();
    for (int distance = blockDim.x / 2; distance > 0; distance >>= 1) {
        if (t < distance) mine[t] += mine[t + distance];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = mine[0];
}
"""
ONE_BLOCK = """
__global__ void total(float* data, float* sum) {
    unsigned int i = 2 * threadIdx.x;
    for (unsigned int distance = 1; distance <= blockDim.x; distance *= 2) {
        if (threadIdx.x % distance == 0) data[i] += data[i + distance];
        __syncthreads();
    }
    if (threadIdx.x == 0) *sum = data[0];
}
"""
FROM_THE_END = """
__global__ void total(float* data, float* sum) {
    unsigned int i = threadIdx.x + blockDim.x;
    for (unsigned int distance = blockDim.x; distance >= 1; distance /= 2) {
        if (blockDim.x - threadIdx.x <= distance) data[i] += data[i - distance];
        __syncthreads();
    }
    if (threadIdx.x == blockDim.x - 1) *sum = data[i];
}
"""
WRITTEN_OUT = """
#define SIZE 64
__global__ void total(const float* data, float* sums, int n) {
    __shared__ float part[SIZE];
    const int t = threadIdx.x, i = blockIdx.x * SIZE + t;
    if (blockIdx.x * SIZE >= n) return;
    part[t] = i < n ? data[i] : 0.0f;
    __syncthreads();
    if (t < 32) {
        volatile float* warp = part;
        warp[t] += warp[t + 32];
        warp[t] += warp[t + 16];
        warp[t] += warp[t + 8];
        warp[t] += warp[t + 4];
        warp[t] += warp[t + 2];
        warp[t] += warp[t + 1];
    }
    if (t == 0) atomicAdd(&sums[0], part[0]);
}
"""
LAUNCH = """
def launch(module, data, sums, n):
    scratch = data.clone()
    module.total[(n + 63) // 64, 64](scratch, sums, n)
    return sums
"""
ALONE = LAUNCH.replace("(n + 63) // 64", "1").replace(", sums, n)\n    r", ", sums)\n    r")
KERNELS = {
    "neighbours": (NEIGHBOURS, LAUNCH, (3,), 1, 192),
    "pairs first": (PAIRS_FIRST, LAUNCH, (2,), 2, 256),
    "pairs first, a ragged end": (PAIRS_FIRST, LAUNCH, (2,), 2, 220),
    "one block": (ONE_BLOCK, ALONE, (1,), 2, 128),
    "from the end": (FROM_THE_END, ALONE, (1,), 2, 128),
    "written out": (WRITTEN_OUT, LAUNCH, (3,), 1, 192),
    "written out, a ragged end": (WRITTEN_OUT, LAUNCH, (4,), 1, 130),  # the last block has nothing to add
}


@pytest.mark.parametrize(("text", "launch", "blocks", "each", "n"), KERNELS.values(), ids=KERNELS)
def test_blocks_add_up_the_same_elements(text: str, launch: str, blocks: tuple[int], each: int, n: int) -> None:
    (found,) = rewritten(rewrite, text, launch)
    assert "block_reduce(own_sum" in found.kernel.text
    assert "distance" not in found.kernel.text
    assert "__shared__ float part" not in found.kernel.text
    kind = np.int32 if "int* data" in text else np.float32
    data = np.random.default_rng(5).integers(1, 9, n).astype(kind)
    limit = (n,) if " n)" in text else ()
    results = [
        emulated(one, (*blocks, 1), (64, 1), data.copy(), np.zeros(8, kind), *limit)[1]
        for one in (text, found.kernel.text)
    ]
    assert results[1].sum() == data.sum()
    np.testing.assert_array_equal(*results)


def test_the_array_that_a_kernel_added_up_in_place_stays_as_it_was() -> None:
    (found,) = rewritten(rewrite, NEIGHBOURS, LAUNCH)
    data = np.arange(64, dtype=np.int32)
    kept, _ = emulated(found.kernel.text, (1, 1), (64, 1), data.copy(), np.zeros(1, np.int32), 64)
    np.testing.assert_array_equal(kept, data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mine[t] += mine[t + distance];", "mine[t] += 2 * mine[t + distance];"),
        ("mine[t] += mine[t + distance];", "mine[t] = max(mine[t], mine[t + distance]);"),
        ("distance *= 2", "distance *= 4"),  # adds up a part of the elements
        ("distance < blockDim.x", "distance < blockDim.x / 2"),
        ("        __syncthreads();\n", ""),  # threads meet with no barrier between
        ("(2 * distance) == 0", "distance == 0"),  # a thread adds what another one changes
        ("sums[blockIdx.x] = mine[0]", "sums[t] = mine[0]"),
        ("sums[blockIdx.x] = mine[0]", "sums[blockIdx.x] = mine[0] / n"),
        ("sums[blockIdx.x] = mine[0]", "data[n] = mine[0]"),
        ("if (t == 0) sums", "sums"),
        ("if (t >= n) return;", "if (t >= n) return; sums[n + t] = t;"),
        ("if (t >= n) return;", "if (blockIdx.x * blockDim.x + t + 1 >= n) return;"),
        ("blockIdx.x * blockDim.x", "blockIdx.x"),  # blocks share elements
        ("blockIdx.x * blockDim.x", "gridDim.x * blockDim.x"),
    ],
)
def test_blocks_that_do_something_else_are_left_alone(old: str, new: str) -> None:
    assert old in NEIGHBOURS
    assert rewritten(rewrite, NEIGHBOURS.replace(old, new), LAUNCH) == []


def test_a_block_that_leaves_elements_out_at_a_ragged_end_is_left_alone() -> None:
    twice = "if (i + blockDim.x < n) data[i] += data[i + blockDim.x];"
    assert rewritten(rewrite, PAIRS_FIRST.replace(twice, f"{twice} else data[i] = 0;"), LAUNCH) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return sums", "return sums, scratch"),
        ("return sums", "return sums\n\nCONTRACT = dict(mutates=('scratch',))"),
        ("    module", "    for _ in range(2): module"),
    ],
)
def test_an_array_that_is_looked_at_again_keeps_its_partial_sums(old: str, new: str) -> None:
    assert old in LAUNCH
    assert rewritten(rewrite, NEIGHBOURS, LAUNCH.replace(old, new)) == []
    assert rewritten(rewrite, WRITTEN_OUT, LAUNCH.replace(old, new))  # nothing is left in the array


def test_a_block_that_walks_along_an_array_is_not_followed_to_its_end() -> None:
    each = "for (int i = threadIdx.x; i < n; i += blockDim.x) own += data[i];"
    text = f"__global__ void total(const int* data, int* sums, int n) {{ int own = 0; {each} sums[0] = own; }}"
    run = BlockRun(KernelTree(*cuda_kernel(text)), 64, 0, {"n": 1 << 28}, 1 << 28)
    with pytest.raises(LookupError, match="too many elements"):
        run.stores()


HOST = """
void sum(const int* from, int* to, int n) {
    int *data, *sums;
    cudaMalloc(&data, n * 4);
    cudaMemcpy(data, from, n * 4, cudaMemcpyHostToDevice);
    total<<<n / 128, 128>>>(data, sums, n);
    cudaMemcpy(to, sums, n / 32, cudaMemcpyDeviceToHost);
    CHECK(cudaMemcpy(data, from, n * 4, cudaMemcpyHostToDevice));
    other<<<n / 128, 128>>>(data, sums, n);
}
"""


def test_host_code_that_fills_the_array_anew_does_not_look_at_it() -> None:
    sometimes = HOST.replace("CHECK(", "if (n > 9) { CHECK(").replace("Device));", "Device)); }")
    assert rewritten(rewrite, NEIGHBOURS + HOST)
    assert rewritten(rewrite, NEIGHBOURS + sometimes) == []
    assert rewritten(rewrite, NEIGHBOURS + HOST.replace("CHECK(cudaMemcpy(data, from", "(cudaMemcpy(to, data")) == []
    assert rewritten(rewrite, NEIGHBOURS + HOST.replace("*data, ", "").replace("const int* from", "int* data")) == []
