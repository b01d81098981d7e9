"""Counters are what the hardware's would be: sectors, passes over the banks, divergent branches, bytes."""

import numpy as np
import pytest
from emulator_kit import compiled, launch, line_of
from hypothesis import given
from hypothesis import strategies as st

from kernel_lsp.emulate import counters
from kernel_lsp.emulate.lanes import Lanes

SOURCE = r"""
extern "C" {
__global__ void strided(const float* x, float* y, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i * stride];  // load
    y[i] = v;  // store
}
__global__ void vectors(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void columns(float* y, int pitch) {
    extern __shared__ float s[];
    s[threadIdx.x * pitch] = threadIdx.x;  // into shared
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x * pitch];  // out of shared
}
__global__ void wide(float4* y) {
    __shared__ float4 s[32];
    s[threadIdx.x] = make_float4(1, 2, 3, 4);  // 16 bytes each
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void branches(int* y, int n) {
    if (threadIdx.x % 64 < n)  // condition
        y[threadIdx.x] = clock();
    else
        y[threadIdx.x + 1] = 7;
}
__global__ void rows(const float* x, float* y, int n, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int j = 0; j < size; ++j) sum += x[i * size + j];  // a row for each thread
    y[i] = sum;
}
__global__ void first(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x > 0) return;
    float sum = 0;
    for (int j = 0; j < 64; ++j) sum += s[j];  // all by one thread
    y[0] = sum;
}
}
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    return compiled(SOURCE)


def at(done, text: str):
    """Counters of the line with this text."""
    line = line_of(SOURCE, text)
    (found,) = [each for place, each in done.result.counters.lines.items() if place is not None and place.line == line]
    return found


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (4, 16), (8, 32), (32, 32), (0, 1)])
def test_sectors_of_strided_loads(ptx, stride, sectors):
    x, y = np.zeros(128 * 32, np.float32), np.zeros(128, np.float32)
    done = launch(ptx, "strided", 2, 64, x, y, stride)
    load, store = at(done, "// load"), at(done, "// store")
    assert (load.load_requests, load.load_sectors, load.load_ideal_sectors) == (4, 4 * sectors, 16)
    assert (store.store_requests, store.store_sectors, store.store_ideal_sectors) == (4, 16, 16)
    total = done.result.counters.total
    assert (total.bytes_read, total.bytes_written) == (512, 512)
    assert done.result.counters.least_bytes_read == (512 if stride else 4)
    assert done.result.counters.least_bytes_written == 512


def test_sectors_of_vector_loads(ptx):
    done = launch(ptx, "vectors", 1, 48, np.zeros((48, 4), np.float32), np.zeros((48, 4), np.float32))
    total = done.result.counters.total
    assert (total.load_requests, total.load_sectors, total.load_ideal_sectors) == (2, 24, 24)


@pytest.mark.parametrize(("pitch", "passes"), [(1, 1), (2, 2), (8, 8), (32, 32), (33, 1), (0, 1), (3, 1)])
def test_conflicts_of_banks(ptx, pitch, passes):
    done = launch(ptx, "columns", 3, 32, np.zeros(32, np.float32), pitch, shared=4 * 33 * 32)
    for found in (at(done, "// into shared"),):
        assert found.shared_store_requests == 3
        assert found.shared_store_wavefronts == 3 * passes
        assert found.shared_store_conflicts == 3 * (passes - 1)
    found = at(done, "// out of shared")
    assert (found.shared_load_requests, found.shared_load_conflicts) == (3, 3 * (passes - 1))


def test_wide_accesses_take_a_pass_for_each_quarter_warp(ptx):
    found = at(launch(ptx, "wide", 1, 32, np.zeros((32, 4), np.float32)), "// 16 bytes each")
    assert (found.shared_store_requests, found.shared_store_wavefronts, found.shared_store_conflicts) == (1, 4, 0)


@pytest.mark.parametrize(("n", "divergent"), [(0, 0), (10, 1), (32, 0), (40, 1), (64, 0)])
def test_divergent_branches(ptx, n, divergent):
    done = launch(ptx, "branches", 4, 64, np.zeros(65, np.int32), n)
    assert at(done, "// condition").divergent_branches == 4 * divergent


def test_instructions_are_counted_by_warp_and_by_thread(ptx):
    done = launch(ptx, "vectors", 1, 48, np.zeros((48, 4), np.float32), np.zeros((48, 4), np.float32))
    total, opcodes = done.result.counters.total, done.result.counters.opcodes
    assert opcodes["ld"] == 2 * 3  # two parameters, one load
    assert opcodes["st"] == 2
    assert total.instructions == done.result.instructions == sum(opcodes.values())
    assert total.lane_instructions == total.instructions * 24  # 48 threads in two warps


def test_threads_without_a_row_have_no_work(ptx):
    """A warp is not divergent because a small case has no rows for the rest of its threads."""
    done = launch(ptx, "rows", 2, 64, np.zeros((70, 8), np.float32), np.zeros(70, np.float32), 70, 8)
    found = at(done, "// a row for each thread")
    assert found.instructions
    assert found.working_lanes * 3 * 32 == found.instructions * (2 * 32 * 32 + 6 * 32), "two warps, and 6 threads"
    assert found.working_lanes == found.lane_instructions


def test_threads_that_leave_after_their_part_are_missed(ptx):
    done = launch(ptx, "first", 1, 64, np.zeros(64, np.float32), np.zeros(1, np.float32))
    found = at(done, "// all by one thread")
    assert found.lane_instructions == found.instructions
    assert found.working_lanes == 32 * found.instructions


addresses = st.lists(st.integers(0, 4096), min_size=64, max_size=64)


@given(addresses, st.sampled_from([1, 2, 4, 8, 16]), st.lists(st.booleans(), min_size=64, max_size=64))
def test_sectors_are_the_different_ones_of_each_warp(places, size, active):
    at_bytes = np.array(places)[None, :] * size
    mask = np.array(active)[None, :]
    lanes = Lanes.of(mask)
    if lanes is None:
        return
    warps = [
        {p * size // 32 for p, a in zip(places[s], active[s], strict=True) if a} for s in (slice(32), slice(32, 64))
    ]
    requests, sectors, _ = counters.sectors(lanes.read(at_bytes), size, lanes)
    assert requests == sum(bool(warp) for warp in warps)
    assert sectors == sum(map(len, warps))


@given(addresses, st.sampled_from([1, 4, 8, 16]), st.lists(st.booleans(), min_size=64, max_size=64))
def test_passes_are_the_most_words_of_a_bank_in_each_part_of_a_warp(places, size, active):
    lanes = Lanes.of(np.array(active)[None, :])
    if lanes is None:
        return
    together = 32 if size <= 4 else 128 // size
    expected = parts = 0
    for start in range(0, 64, together):
        words = {
            p * size // 4 + w
            for p, a in zip(places[start : start + together], active[start : start + together], strict=True)
            if a
            for w in range(max(1, size // 4))
        }
        if words:
            parts += 1
            expected += max(sum(word % 32 == bank for word in words) for bank in range(32))
    _, passes, conflicts = counters.wavefronts(lanes.read(np.array(places)[None, :] * size), size, lanes)
    assert (passes, conflicts) == (expected, expected - parts)
