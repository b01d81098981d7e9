"""Each kind of mistake is found at its line with the values that matter; its clean twin reports nothing."""

import numpy as np
import pytest
from emulator_kit import compiled, launch, line_of

from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.machine import Options

SOURCE = r"""
#include <cuda_pipeline.h>
extern "C" {
__global__ void copy_past(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] =
        x[i];  // past the end
}
__global__ void copy_past_clean(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void vector_off(const float* x, float4* y) {
    y[threadIdx.x] = *(const float4*)(x + 1 + 4 * threadIdx.x);  // off
}
__global__ void shared_past(float* y) {
    __shared__ float s[32];
    s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x + 1];  // behind s
}
__global__ void adds_to_nothing(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }  // nothing there
__global__ void selects(const float* x, float* y, int n) {
    __shared__ float s[66];
    int t = threadIdx.x;
    s[t + 1] = x[t];
    __syncthreads();
    float left = s[t], right = s[t + 2];
    y[t] = (t > 0 ? left : 0) + (t < 63 ? right : 0);
}
__global__ void selects_wrong(const float* x, float* y, int n) {
    __shared__ float s[66];
    int t = threadIdx.x;
    s[t + 1] = x[t];
    __syncthreads();
    float left = s[t];  // t == 0 has none
    y[t] = t > -1 ? left : 0;
}
__global__ void half_written(unsigned short* x, unsigned* y) {
    x[2 * threadIdx.x] = 7;
    unsigned both = ((const unsigned*)x)[threadIdx.x];
    y[threadIdx.x] = both & 0xffff;
}
__global__ void half_written_wrong(unsigned short* x, unsigned* y) {
    x[2 * threadIdx.x] = 7;
    unsigned both = ((const unsigned*)x)[threadIdx.x];  // half of it
    y[threadIdx.x] = both >> 8;
}
__global__ void reverse(const float* x, float* y) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[127 - threadIdx.x];  // no barrier
}
__global__ void reverse_clean(const float* x, float* y) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[127 - threadIdx.x];
}
__global__ void refill(const float* x, float* y, int n) {
    __shared__ float s[64];
    float sum = 0;
    for (int k = 0; k < n; ++k) {
        s[threadIdx.x] = x[k * 64 + threadIdx.x];  // while others still read
        __syncthreads();
        sum += s[63 - threadIdx.x];
    }
    y[threadIdx.x] = sum;
}
__global__ void warp_only(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void across_warps(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    y[threadIdx.x] = s[threadIdx.x ^ 32];  // another warp's
}
__global__ void one_cell(int* y) {
    __shared__ int s;
    s = threadIdx.x;  // all of them
    __syncthreads();
    y[threadIdx.x] = s;
}
__global__ void one_cell_clean(int* y) {
    __shared__ int s;
    s = blockDim.x;
    __syncthreads();
    y[threadIdx.x] = s;
}
__global__ void not_waited(const float4* x, float4* y) {
    __shared__ float4 s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], x + threadIdx.x, 16);
    __pipeline_commit();
    y[threadIdx.x] = s[threadIdx.x];  // under way
}
__global__ void neighbours(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float next = x[(i + 1) % n];  // another block's
    x[i] = next;  // that another block reads
}
__global__ void everyone_writes(int* y) { y[threadIdx.x] = blockIdx.x; }  // different values
__global__ void everyone_writes_clean(int* y) { y[threadIdx.x] = 1; }
__global__ void last_block(const float* x, float* part, unsigned* done, float* y, int n) {
    __shared__ float s[64];
    __shared__ bool last;
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    if (t == 0) {
        float sum = 0;
        for (int i = 0; i < 64; ++i) sum += s[i];
        part[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        float sum = 0;
        for (int b = 0; b < gridDim.x; ++b) sum += part[b];
        y[0] = sum;
    }
}
__global__ void last_block_unfenced(const float* x, float* part, unsigned* done, float* y, int n) {
    __shared__ bool last;
    int t = threadIdx.x;
    if (t == 0) {
        part[blockIdx.x] = x[blockIdx.x * 64];
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        float sum = 0;
        for (int b = 0; b < gridDim.x; ++b)
            sum += part[b];  // nobody has fenced
        y[0] = sum;
    }
}
__global__ void half_a_warp(float* y) {
    if (threadIdx.x < 16)
        __syncthreads();  // not for all
    y[threadIdx.x] = 1;
}
__global__ void leaves_early(float* y, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();
    y[threadIdx.x] = 1;
}
__global__ void shuffles_apart(const float* x, float* y) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16)
        v = __shfl_down_sync(~0u, v, 16);  // from those who are not here
    y[threadIdx.x] = v;
}
__global__ void shuffles_apart_clean(const float* x, float* y) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffu, v, 8);
    y[threadIdx.x] = v;
}
__global__ void different_barriers(float* y) {
    if (threadIdx.x < 32)
        asm volatile("barrier.sync 1, 96;");  // three warps
    else
        asm volatile("barrier.sync 2, 96;");
    y[threadIdx.x] = 1;
}
__global__ void own_barriers(float* y) {
    __shared__ float s[128];
    s[threadIdx.x] = threadIdx.x;
    asm volatile("bar.sync %0, 64;" ::"r"(threadIdx.x / 64 + 4) : "memory");  // each half its own
    y[threadIdx.x] = s[threadIdx.x ^ 63];
}
__global__ void arrives_and_waits(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = 1;
    if (threadIdx.x < 32) asm volatile("bar.arrive 1, 64;" ::: "memory");
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");  // the second 32 arrivals
    else asm volatile("bar.sync 2, 32;" ::: "memory");
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void counts_down(float* y, unsigned n) {
    for (unsigned i = n; i >= 0; --i) y[i % 32] += 1;  // for ever
}
__global__ void waits(volatile int* flag, float* y) {
    while (*flag == 0) {}  // for nobody
    y[0] = 1;
}
__global__ void tells_all(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[blockIdx.x * 64 + threadIdx.x] = s[5];  // one cell for everybody
}
__global__ void asserts(int* x) {
    if (x[threadIdx.x] > 5) __trap();  // on purpose
}
}
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    return compiled(SOURCE)


def zeros(*shape: int, kind: type = np.float32) -> np.ndarray:
    return np.zeros(shape, kind)


def only(done, kind: FindingKind, text: str):
    """The one finding of a launch, which must be of this kind and stand at the line with this text."""
    (finding,) = done.findings
    assert finding.kind is kind, finding.message
    assert finding.location is not None
    assert finding.location.line == line_of(SOURCE, text), finding.message
    return finding


def test_read_past_the_end(ptx):
    done = launch(ptx, "copy_past", 2, 64, zeros(100), zeros(128), 100)
    found = only(done, FindingKind.OUT_OF_BOUNDS, "// past the end")
    assert (found.buffer, found.index, found.size, found.access, found.space) == ("a0", 400, 4, "read", "global")
    assert (found.thread, found.block, found.count) == ((36, 0, 0), (1, 0, 0), 1)
    assert found.message == "Reads `a0[100]`, but `a0` has 100 elements (thread 36, block 1)."


ACCESSES = r"""
extern "C" {
__global__ void reads(const float* x, float* y, int at) { y[0] = x[at + (int)threadIdx.x]; }
__global__ void writes(const float* x, float* y, int at) { y[at] = x[0]; }
__global__ void adds(const float* x, float* y, int at) { atomicAdd(y + at, x[0]); }
__global__ void reads_vector(const float* x, float4* y, int at) { y[0] = ((const float4*)x)[at]; }
__global__ void reads_half(const char* x, float* y, int at) { y[0] = *(const unsigned short*)(x + at); }
__global__ void reads_across(const char* x, float* y, int at) { y[0] = *(const unsigned*)(x + at); }
__global__ void reads_nothing(const float* x, float* y, int at) { y[0] = *(const float*)(long)at; }
__global__ void reads_afar(const float* x, float* y, long at) { y[0] = ((const float*)(x + (at << 40)))[0]; }
}
"""


@pytest.mark.parametrize(
    ("kernel", "at", "kind", "said"),
    [
        ("reads", 100, np.float32, "Reads `a0[100]`, but `a0` has 100 elements"),
        ("reads", -1, np.float32, "Reads `a0[-1]`, before the start of `a0`"),
        ("reads", 10**8, np.float32, "Reads what would be `a"),
        ("writes", 7, np.float32, "Writes `a1[7]`, but `a1` has 4 elements"),
        ("adds", 4, np.float32, "Atomically updates `a1[4]`, but `a1` has 4 elements"),
        ("reads_vector", 25, np.float32, "Reads `a0[100]` to `a0[103]`, but `a0` has 100 elements"),
        ("reads_vector", -1, np.float32, "Reads `a0[-4]` to `a0[-1]`, before the start of `a0`"),
        ("reads_half", 400, np.float32, "Reads 2 bytes from byte 0 of `a0[100]` on, but `a0` has 100 elements"),
        ("reads_across", 400, np.float16, "Reads `a0[200]` to `a0[201]`, but `a0` has 200 elements"),
        ("reads_across", 402, np.float32, "Reads 4 bytes from byte 2 of `a0[100]` on, but `a0` has 100 elements"),
        ("reads_nothing", 12, np.float32, "Reads 4 bytes through a null pointer"),
        ("reads_afar", 1, np.float32, "Reads 4 bytes that are in no tensor, nor near one"),
    ],
)
def test_an_access_out_of_bounds_is_told_in_elements_of_the_tensor(kernel, at, kind, said):
    arrays = np.zeros(400 // np.dtype(kind).itemsize, kind), zeros(4)
    message = launch(compiled(ACCESSES), kernel, 1, 1, *arrays, at).findings[0].message
    assert message.startswith(said)
    assert message.endswith(" (thread 0, block 0).")
    assert "0x" not in message


def test_out_of_bounds_accesses_do_nothing(ptx):
    x = np.arange(100, dtype=np.float32) + 1
    done = launch(ptx, "copy_past", 2, 64, x, zeros(101), 100)
    assert done.arrays[1].tolist() == [*x, 0]


def test_within_bounds(ptx):
    assert launch(ptx, "copy_past_clean", 2, 64, zeros(100), zeros(100), 100).findings == ()


def test_misaligned_vector(ptx):
    done = launch(ptx, "vector_off", 1, 8, zeros(40), zeros(8, 4))
    found = only(done, FindingKind.MISALIGNED, "// off")
    assert (found.buffer, found.index, found.size, found.count) == ("a0", 4, 16, 8)
    assert found.message == (
        "Reads 16 bytes at once (`a0[1]` to `a0[4]`), whose address is not a multiple of 16 (thread 0, block 0)."
    )


def test_shared_memory_past_the_end(ptx):
    found = only(launch(ptx, "shared_past", 2, 32, zeros(32)), FindingKind.OUT_OF_BOUNDS, "// behind s")
    assert (found.space, found.address, found.thread, found.count) == ("shared", 128, (31, 0, 0), 2)
    assert found.message == (
        "Reads element 32 of `s`, but the block has 128 bytes of shared memory (thread 31, block 0)."
    )


def test_global_memory_that_nothing_wrote(ptx):
    done = launch(ptx, "adds_to_nothing", 1, 32, zeros(32), zeros(32), empty=[1])
    found = only(done, FindingKind.UNINITIALISED, "// nothing there")
    assert (found.buffer, found.index, found.access, found.count) == ("a1", 0, "read", 32)
    assert launch(ptx, "adds_to_nothing", 1, 32, zeros(32), zeros(32)).findings == ()


def test_unwritten_values_that_are_not_used(ptx):
    assert launch(ptx, "selects", 1, 64, zeros(64), zeros(64), 64).findings == ()
    assert (
        launch(ptx, "half_written", 1, 32, zeros(64, kind=np.uint16), zeros(32, kind=np.uint32), empty=[0]).findings
        == ()
    )


def test_unwritten_values_that_are_used(ptx):
    done = launch(ptx, "selects_wrong", 1, 64, zeros(64), zeros(64), 64)
    found = only(done, FindingKind.UNINITIALISED, "// t == 0 has none")
    assert (found.space, found.address, found.thread, found.count) == ("shared", 0, (0, 0, 0), 1)
    arrays = zeros(64, kind=np.uint16), zeros(32, kind=np.uint32)
    only(launch(ptx, "half_written_wrong", 1, 32, *arrays, empty=[0]), FindingKind.UNINITIALISED, "// half of it")


def test_read_of_shared_memory_before_the_barrier(ptx):
    found = only(launch(ptx, "reverse", 3, 128, zeros(128), zeros(128)), FindingKind.SHARED_RACE, "// no barrier")
    assert (found.access, found.address, found.thread) == ("read", 508, (0, 0, 0))
    assert found.other is not None
    assert found.other.line == found.location.line - 1
    assert "of `s`, which thread 127 has written" in found.message
    assert launch(ptx, "reverse_clean", 3, 128, zeros(128), zeros(128)).findings == ()


def test_write_of_shared_memory_before_the_barrier(ptx):
    found = only(
        launch(ptx, "refill", 2, 64, zeros(4, 64), zeros(64), 4), FindingKind.SHARED_RACE, "// while others still read"
    )
    assert found.access == "write"


def test_read_of_one_cell_by_all_threads_before_the_barrier(ptx):
    done = launch(ptx, "tells_all", 2, 64, zeros(64), zeros(128))
    found = only(done, FindingKind.SHARED_RACE, "// one cell for everybody")
    assert (found.access, found.address, found.thread) == ("read", 20, (0, 0, 0))


def test_warps_are_ordered_by_their_own_synchronisation_only(ptx):
    assert launch(ptx, "warp_only", 1, 64, zeros(64), zeros(64)).findings == ()
    only(launch(ptx, "across_warps", 1, 64, zeros(64), zeros(64)), FindingKind.SHARED_RACE, "// another warp's")


def test_different_values_in_one_cell(ptx):
    only(launch(ptx, "one_cell", 1, 64, zeros(64, kind=np.int32)), FindingKind.SHARED_RACE, "// all of them")
    assert launch(ptx, "one_cell_clean", 1, 64, zeros(64, kind=np.int32)).findings == ()


def test_asynchronous_copy_that_nobody_waited_for(ptx):
    done = launch(ptx, "not_waited", 1, 64, zeros(64, 4), zeros(64, 4))
    assert "without having waited" in only(done, FindingKind.SHARED_RACE, "// under way").message


def test_blocks_that_read_what_others_write(ptx):
    done = launch(ptx, "neighbours", 4, 64, zeros(256) + np.arange(256, dtype=np.float32), 256)
    lines = {line_of(SOURCE, "// another block's"), line_of(SOURCE, "// that another block reads")}
    assert done.where == {("global-race", line) for line in lines}


def test_blocks_that_write_the_same_place(ptx):
    done = launch(ptx, "everyone_writes", 3, 32, zeros(32, kind=np.int32))
    found = only(done, FindingKind.GLOBAL_RACE, "// different values")
    assert (found.buffer, found.access) == ("a0", "write")
    assert launch(ptx, "everyone_writes_clean", 3, 32, zeros(32, kind=np.int32)).findings == ()


def test_races_between_blocks_that_are_not_resident_together(ptx):
    done = launch(ptx, "everyone_writes", 2000, 32, zeros(32, kind=np.int32))
    assert {finding.kind for finding in done.findings} == {FindingKind.GLOBAL_RACE}


def test_launches_are_ordered(ptx):
    from kernel_lsp.emulate.memory import GlobalMemory

    memory = GlobalMemory()
    for _ in range(2):
        assert launch(ptx, "everyone_writes_clean", 3, 32, zeros(32, kind=np.int32), memory=memory).findings == ()


def test_fence_and_atomic_order_blocks(ptx):
    x = np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)
    arguments = x, zeros(20), zeros(1, kind=np.uint32), zeros(1), 20
    done = launch(ptx, "last_block", 20, 64, *arguments, empty=[1])
    assert done.findings == ()
    np.testing.assert_allclose(done.arrays[3], x.sum(), rtol=1e-4)
    unfenced = launch(ptx, "last_block_unfenced", 20, 64, *arguments, empty=[1])
    only(unfenced, FindingKind.GLOBAL_RACE, "// nobody has fenced")


def test_barrier_in_a_branch(ptx):
    found = only(launch(ptx, "half_a_warp", 1, 64, zeros(64)), FindingKind.DIVERGENT_BARRIER, "// not for all")
    assert (found.thread, found.count) == ((16, 0, 0), 48)
    assert launch(ptx, "leaves_early", 1, 64, zeros(64), 40).findings == ()


def test_shuffle_from_inactive_lanes(ptx):
    done = launch(ptx, "shuffles_apart", 1, 32, zeros(32), zeros(32))
    assert "lane 16" in only(done, FindingKind.INACTIVE_LANE, "// from those who are not here").message
    assert launch(ptx, "shuffles_apart_clean", 1, 32, zeros(32), zeros(32)).findings == ()


def test_deadlock(ptx):
    done = launch(ptx, "different_barriers", 1, 96, zeros(96))
    assert {finding.kind for finding in done.findings} == {FindingKind.DEADLOCK}
    assert ("deadlock", line_of(SOURCE, "// three warps")) in done.where
    assert not done.arrays[0].any()


def test_groups_of_warps_meet_at_barriers_of_their_own(ptx):
    """One `bar.sync` with a number by group, as `warpgroup::sync` of ThunderKittens and CUTLASS' named barriers."""
    done = launch(ptx, "own_barriers", 2, 128, zeros(128))
    assert done.findings == ()
    np.testing.assert_array_equal(done.arrays[0], np.arange(128) ^ 63)


def test_a_warp_that_has_arrived_at_a_barrier_and_waits_there_counts_twice(ptx):
    """As FlashAttention-3's first warpgroup, which lets itself begin."""
    done = launch(ptx, "arrives_and_waits", 1, 64, zeros(64))
    assert done.findings == ()
    np.testing.assert_array_equal(done.arrays[0], np.ones(64))


def test_endless_loop(ptx):
    done = launch(ptx, "counts_down", 1, 1, zeros(32), 5, options=Options(budget=2000))
    only(done, FindingKind.RUNAWAY, "// for ever")


def test_waiting_for_nobody(ptx):
    done = launch(ptx, "waits", 2, 1, zeros(1, kind=np.int32), zeros(1))
    found = only(done, FindingKind.RUNAWAY, "// for nobody")
    assert "no thread makes" in found.message
    assert launch(ptx, "waits", 1, 1, np.ones(1, np.int32), zeros(1)).findings == ()


def test_trap(ptx):
    only(launch(ptx, "asserts", 1, 8, np.arange(8, dtype=np.int32)), FindingKind.TRAP, "// on purpose")
