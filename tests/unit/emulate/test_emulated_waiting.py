"""Threads and blocks that wait for each other all get on."""

import numpy as np
import pytest
from emulator_kit import compiled, launch

from kernel_lsp.emulate.machine import Options

SOURCE = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" {
__global__ void lock_of_blocks(int* mutex, int* total) {
    if (threadIdx.x == 0) {
        while (atomicCAS(mutex, 0, 1) != 0) {}
        __threadfence();
        total[0] = total[0] + 1;
        __threadfence();
        atomicExch(mutex, 0);
    }
}
__global__ void lock_of_threads(int* mutex, int* total) {
    bool done = false;
    while (!done) {
        if (atomicCAS(mutex, 0, 1) == 0) {
            __threadfence();
            total[0] += 1;
            __threadfence();
            atomicExch(mutex, 0);
            done = true;
        }
    }
}
__global__ void grid_barrier(float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = i;
    cg::this_grid().sync();
    if (i < n) b[i] = a[n - 1 - i];
}
__global__ void later_block_first(volatile int* flag, int* y) {
    if (blockIdx.x == gridDim.x - 1) {
        y[1] = 5;
        __threadfence();
        *flag = 1;
    }
    if (blockIdx.x == 0) {
        while (*flag == 0) {}
        __threadfence();
        y[0] = y[1];
    }
}
__global__ void waits_by_the_clock(volatile int* parts, int* y) {
    parts[blockIdx.x] = blockIdx.x;
    if (blockIdx.x == 0) {
        for (long long from = clock64(); clock64() - from < 2000;) {}
        int sum = 0;
        for (int k = 0; k < gridDim.x; ++k) sum += parts[k];
        *y = sum;
    }
}
__global__ void last_one_adds_up(volatile int* parts, int* y, int* done) {
    parts[blockIdx.x] = blockIdx.x;
    __threadfence();
    if (atomicAdd(done, 1) == gridDim.x - 1) {
        __threadfence();
        int sum = 0;
        for (int k = 0; k < gridDim.x; ++k) sum += parts[k];
        *y = sum;
    }
}
__global__ void halves_of_a_warp(const int* x, int* y) {
    int v = x[threadIdx.x];
    if (threadIdx.x & 1) v *= 3; else v += 100;
    __syncwarp();
    y[threadIdx.x] = __shfl_xor_sync(~0u, v, 1);
}
__global__ void producers(const int* x, int* y, int n) {
    __shared__ int s[32];
    int lane = threadIdx.x % 32;
    for (int k = 0; k < n; ++k) {
        if (threadIdx.x < 32) {
            asm volatile("barrier.sync 1, 64;");
            s[lane] = x[k * 32 + lane];
            asm volatile("barrier.arrive 2, 64;");
        } else {
            asm volatile("barrier.arrive 1, 64;");
            asm volatile("barrier.sync 2, 64;");
            y[k * 32 + lane] = s[31 - lane];
        }
    }
}
__global__ void blocks_of_different_lengths(const int* n, int* y) {
    __shared__ int s[64];
    int sum = 0;
    for (int k = 0; k < n[blockIdx.x]; ++k) {
        s[threadIdx.x] = k + threadIdx.x;
        __syncthreads();
        sum += s[63 - threadIdx.x];
        __syncthreads();
    }
    y[blockIdx.x * 64 + threadIdx.x] = sum;
}
}
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    return compiled(SOURCE)


def ints(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


def test_lock_between_blocks(ptx):
    done = launch(ptx, "lock_of_blocks", 40, 32, ints(1), ints(1))
    assert (done.arrays[0][0], done.arrays[1][0]) == (0, 40)
    assert done.findings == ()


def test_lock_between_threads_of_a_warp(ptx):
    done = launch(ptx, "lock_of_threads", 2, 64, ints(1), ints(1))
    assert done.arrays[1][0] == 128


@pytest.mark.parametrize("blocks", [2, 600])
def test_barrier_of_the_whole_grid(ptx, blocks):
    n = blocks * 128
    done = launch(ptx, "grid_barrier", blocks, 128, np.zeros(n, np.float32), np.zeros(n, np.float32), n)
    assert (done.arrays[1] == np.arange(n)[::-1]).all()
    assert done.findings == ()


@pytest.mark.parametrize("blocks", [2, 5000])
def test_first_block_waits_for_the_last(ptx, blocks):
    done = launch(ptx, "later_block_first", blocks, 32, ints(1), ints(2))
    assert done.arrays[1].tolist() == [5, 5]


def test_who_waits_by_the_clock_reads_what_is_not_written_yet(ptx):
    runs = [
        launch(ptx, "waits_by_the_clock", 32, 1, ints(32), ints(1), empty=(0,), options=Options(order=seed))
        for seed in range(12)
    ]
    found = [{finding.kind.value for finding in run.findings} for run in runs]
    assert all("uninitialised" in kinds | back for kinds, back in zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_who_waits_for_what_others_say_is_right_in_any_order_of_blocks(ptx, seed):
    order = Options(order=seed)
    done = launch(ptx, "last_one_adds_up", 32, 1, ints(32), ints(1), ints(1), empty=(0,), options=order)
    assert (done.arrays[1].tolist(), done.findings) == ([496], ())
    n = 600 * 128
    done = launch(ptx, "grid_barrier", 600, 128, np.zeros(n, np.float32), np.zeros(n, np.float32), n, options=order)
    assert (done.arrays[1] == np.arange(n)[::-1]).all()
    done = launch(ptx, "later_block_first", 100, 32, ints(1), ints(2), options=order)
    assert done.arrays[1].tolist() == [5, 5]


def test_halves_of_a_warp_meet_at_a_shuffle(ptx):
    x = np.arange(64, dtype=np.int32)
    done = launch(ptx, "halves_of_a_warp", 1, 64, x, ints(64))
    own = np.where(x % 2 == 1, 3 * x, x + 100)
    assert (done.arrays[1] == own.reshape(-1, 2)[:, ::-1].ravel()).all()
    assert done.findings == ()


def test_warps_with_barriers_of_their_own(ptx):
    x = np.random.default_rng(0).integers(0, 1000, (5, 32)).astype(np.int32)
    done = launch(ptx, "producers", 3, 64, x, ints(5, 32), 5)
    assert (done.arrays[1] == x[:, ::-1]).all()
    assert [finding.kind.value for finding in done.findings if finding.kind.value != "global-race"] == []


def test_blocks_with_loops_of_their_own_length(ptx):
    n = np.array([3, 0, 7, 1], np.int32)
    done = launch(ptx, "blocks_of_different_lengths", 4, 64, n, ints(4, 64))
    expected = [[sum(k + 63 - t for k in range(count)) for t in range(64)] for count in n]
    assert done.arrays[1].tolist() == expected
    assert done.findings == ()
