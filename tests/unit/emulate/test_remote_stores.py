"""Stores, reductions and copies to another block's shared memory that report their bytes to an mbarrier there."""

import numpy as np
import pytest
from emulator_kit import HOPPER, Launched, compiled, launch, line_of

from kernel_lsp.emulate.errors import NeedsGpu, placed
from kernel_lsp.emulate.program import Location

SOURCE = (
    HOPPER
    + r"""
__device__ unsigned there(const void* p, unsigned rank) {
    unsigned found;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(at(p)), "r"(rank));
    return found;
}
__device__ unsigned rank() { unsigned found; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(found)); return found; }
__device__ void meet() { asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory"); }
__device__ void send(int* to, int value, u64* bar, unsigned rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 :: "r"(there(to, rank)), "r"(value), "r"(there(bar, rank)) : "memory");
}
__device__ void send(int4* to, int4 v, u64* bar, unsigned rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                 :: "r"(there(to, rank)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(there(bar, rank)) : "memory");
}
__device__ void add(int* to, int value, u64* bar, unsigned rank) {
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32 [%0], %1, [%2];"
                 :: "r"(there(to, rank)), "r"(value), "r"(there(bar, rank)) : "memory");
}
__device__ void copy(void* to, const void* from, unsigned bytes, u64* bar, unsigned rank) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(there(to, rank)), "r"(at(from)), "r"(bytes), "r"(there(bar, rank)) : "memory");
}
__device__ void add_all(void* to, const void* from, unsigned bytes, u64* bar, unsigned rank) {
    asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.max.s32 "
                 "[%0], [%1], %2, [%3];"
                 :: "r"(there(to, rank)), "r"(at(from)), "r"(bytes), "r"(there(bar, rank)) : "memory");
}
extern "C" {
__global__ void __cluster_dims__(2) swaps(const int* x, int* y, int bytes, int parity) {
    __shared__ int box[32];
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, bytes); }
    meet();
    send(box + threadIdx.x, x[blockIdx.x * 32 + threadIdx.x], &bar, rank() ^ 1);
    if (parity == 0) wait(&bar, 0);
    y[blockIdx.x * 32 + threadIdx.x] = box[31 - threadIdx.x];
    meet();
}
__global__ void __cluster_dims__(2) swaps_vectors(const int4* x, int4* y) {
    __shared__ int4 box[32];
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, 512); }
    meet();
    send(box + threadIdx.x, x[blockIdx.x * 32 + threadIdx.x], &bar, rank() ^ 1);
    wait(&bar, 0);
    y[blockIdx.x * 32 + threadIdx.x] = box[threadIdx.x];
}
__global__ void __cluster_dims__(4) adds(const int* x, int* y) {
    __shared__ int sum[2];
    __shared__ u64 bar;
    if (threadIdx.x == 0) { sum[0] = sum[1] = 0; init(&bar, 1); if (rank() == 0) expect(&bar, 512); }
    meet();
    add(sum + threadIdx.x % 2, x[blockIdx.x * 32 + threadIdx.x], &bar, 0);
    if (rank() == 0) {
        wait(&bar, 0);
        if (threadIdx.x < 2) y[threadIdx.x] = sum[threadIdx.x];
    }
    meet();
}
__global__ void __cluster_dims__(2) begins_too_early(int* y) {
    __shared__ int box[32];
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, 128); }
    meet();
    box[threadIdx.x] = 0;  // after the barrier
    send(box + threadIdx.x, 1, &bar, rank() ^ 1);  // overwrites
    wait(&bar, 0);
    y[blockIdx.x * 32 + threadIdx.x] = box[threadIdx.x];
    meet();
}
__global__ void __cluster_dims__(2) copies(const int* x, int* y, int fenced, int spoils) {
    __shared__ __align__(16) int mine[32], box[32];
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, 128); }
    mine[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];  // the source
    if (fenced) fence();
    meet();
    if (threadIdx.x == 0) copy(box, mine, 128, &bar, rank() ^ 1);  // from block to block
    if (spoils) { __syncthreads(); mine[threadIdx.x] = 0; }  // still read
    wait(&bar, 0);
    y[blockIdx.x * 32 + threadIdx.x] = box[threadIdx.x];
    meet();
    mine[threadIdx.x] = 0;  // all copies have ended
}
__global__ void __cluster_dims__(4) maxima(const int* x, int* y) {
    __shared__ __align__(16) int mine[32], most[32];
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); if (rank() == 0) expect(&bar, 512); }
    mine[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    most[threadIdx.x] = -1000;
    fence();
    meet();
    if (threadIdx.x == 0) add_all(most, mine, 128, &bar, 0);
    if (rank() == 0) {
        wait(&bar, 0);
        y[threadIdx.x] = most[threadIdx.x];
    }
    meet();
}
}
"""
)
X = np.random.default_rng(1).integers(-99, 99, (4, 32), dtype=np.int32)
Y = np.zeros_like(X)


def ran(entry: str, *more: int) -> Launched:
    return launch(compiled(SOURCE, "sm_90"), entry, 4, 32, X, Y, *more)


def test_stores_arrive_before_the_phase_ends():
    done = ran("swaps", 128, 0)
    assert done.findings == ()
    np.testing.assert_array_equal(done.arrays[1], X.reshape(2, 2, 32)[:, ::-1, ::-1].reshape(4, 32))


def test_vectors_are_stored_whole():
    x = np.arange(4 * 128, dtype=np.int32)
    done = launch(compiled(SOURCE, "sm_90"), "swaps_vectors", 4, 32, x, np.zeros_like(x))
    assert done.findings == ()
    np.testing.assert_array_equal(done.arrays[1].reshape(2, 2, 128), x.reshape(2, 2, 128)[:, ::-1])


def test_a_store_that_nobody_waited_for():
    line = line_of(SOURCE, "box[31 - threadIdx.x]")
    assert ran("swaps", 128, 1).where == {("unawaited-copy", line)}


def test_more_bytes_are_announced_than_stored():
    (finding,) = ran("swaps", 132, 0).findings
    assert finding.kind.value == "transaction-bytes"
    assert "misses 4 bytes" in finding.message


def test_a_store_overwrites_what_a_thread_writes_in_no_order():
    done = launch(compiled(SOURCE, "sm_90"), "begins_too_early", 4, 32, Y)
    assert done.where == {("overwritten-stage", line_of(SOURCE, "// overwrites"))}
    assert f"writes at line {line_of(SOURCE, '// after the barrier')}" in done.findings[0].message


def test_additions_of_all_threads_are_no_race():
    done = ran("adds")
    assert done.findings == ()
    np.testing.assert_array_equal(done.arrays[1][0, :2], X.reshape(-1, 2).sum(0))


def test_a_copy_from_block_to_block():
    done = ran("copies", 1, 0)
    assert done.findings == ()
    np.testing.assert_array_equal(done.arrays[1], X.reshape(2, 2, 32)[:, ::-1].reshape(4, 32))


@pytest.mark.parametrize(
    ("fenced", "spoils", "kind", "text"),
    [(0, 0, "missing-proxy-fence", "// from block to block"), (1, 1, "overwritten-stage", "// still read")],
)
def test_the_source_of_a_copy_from_block_to_block_is_followed(fenced: int, spoils: int, kind: str, text: str):
    assert ran("copies", fenced, spoils).where == {(kind, line_of(SOURCE, text))}


def test_a_reduction_from_block_to_block():
    done = ran("maxima")
    assert done.findings == ()
    np.testing.assert_array_equal(done.arrays[1][0], X.max(0))


def test_a_wrapper_that_announces_what_it_copies_is_named_by_the_kernels_call():
    library = (
        HOPPER
        + """
    #line 1 "library.h"
    __device__ void brings(int* to, const int* from, u64* bar) {
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 128;" :: "r"(at(bar)) : "memory");
        load(to, from, 128, bar);
    }
    """
    )
    kernel = """#line 1 "kernel.cu"
    extern "C" __global__ void reads(const int* x, int* y) {
        __shared__ __align__(16) int box[32];
        __shared__ u64 bar;
        if (threadIdx.x == 0) { init(&bar, 1); }
        __syncthreads();
        if (threadIdx.x == 0) brings(box, x, &bar);
        y[threadIdx.x] = box[threadIdx.x];
        if (threadIdx.x == 0) arrive(&bar);
        wait(&bar, 0);
    }
    """
    done = launch(compiled(library + kernel, "sm_90"), "reads", 1, 32, X, Y)
    finding = next(each for each in done.findings if each.kind.value == "unawaited-copy")
    assert f"the copy at line {line_of(kernel, 'brings(') - 1}" in finding.message


def test_an_instruction_that_is_not_emulated_stands_in_the_kernels_file():
    called = Location("kernel.cu", 7, inlined_at=Location("kernel.cu", 20))
    error = placed(NeedsGpu("`tcgen05.mma`"), Location("mma.h", 300, inlined_at=called))
    assert (str(error.path), error.line) == ("kernel.cu", 7)
