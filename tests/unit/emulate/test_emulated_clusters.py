"""Blocks of a cluster know their ranks, meet at their barrier, and reach into each other's shared memory."""

import numpy as np
import pytest
from emulator_kit import compiled, launch, line_of

from kernel_lsp.emulate.errors import LaunchError, NeedsGpu
from kernel_lsp.emulate.machine import Options

SOURCE = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" {
__global__ void __cluster_dims__(2, 2, 1) ranks(int* y) {
    auto cluster = cg::this_cluster();
    int block = blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) {
        y[4 * block] = cluster.block_rank();
        y[4 * block + 1] = cluster.num_blocks();
        unsigned x, id;
        asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
        asm("mov.u32 %0, %%clusterid.y;" : "=r"(id));
        y[4 * block + 2] = x;
        y[4 * block + 3] = id;
    }
}
__global__ void __cluster_dims__(4) neighbours(const int* x, int* y) {
    __shared__ int s[32];
    auto cluster = cg::this_cluster();
    int i = blockIdx.x * 32 + threadIdx.x;
    s[threadIdx.x] = x[i];
    cluster.sync();
    int next = (cluster.block_rank() + 1) % 4;
    int* theirs = cluster.map_shared_rank(s, next);
    y[i] = theirs[threadIdx.x] + 1000 * cluster.query_shared_rank(theirs);
    cluster.sync();
}
__global__ void __cluster_dims__(4) sums(const int* x, int* y) {
    __shared__ int total[2];
    auto cluster = cg::this_cluster();
    if (threadIdx.x < 2) total[threadIdx.x] = 0;
    cluster.sync();
    atomicAdd(cluster.map_shared_rank(&total[0], 0), x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0 && cluster.block_rank() == 3) cluster.map_shared_rank(total, 0)[1] = 17;
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x < 2) y[blockIdx.x / 4 * 2 + threadIdx.x] = total[threadIdx.x];
}
__global__ void __cluster_dims__(2) remote_arrivals(int* y) {
    __shared__ unsigned long long bar;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" :: "r"(at(&bar)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    cluster.sync();
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, 0;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" :: "r"(at(&bar)) : "memory");
    if (cluster.block_rank() == 0)
        asm volatile("{\n.reg .pred p;\nL:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n"
                     "@!p bra L;\n}" :: "r"(at(&bar)) : "memory");
    y[blockIdx.x * 32 + threadIdx.x] = 1;
    cluster.sync();
}
__global__ void __cluster_dims__(2) one_block_skips(int* y) {
    auto cluster = cg::this_cluster();
    if (cluster.block_rank() == 0) cluster.sync();  // not all
    y[blockIdx.x * 32 + threadIdx.x] = 1;
}
__global__ void __cluster_dims__(2) block_has_ended(const int* x, int* y) {
    __shared__ int s[32];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[threadIdx.x];
    cluster.sync();
    if (cluster.block_rank() == 1) return;
    __syncthreads();
    y[threadIdx.x] = cluster.map_shared_rank(s, 1)[threadIdx.x];  // too late
}
__global__ void __cluster_dims__(2) relaxed(int* y) {
    __shared__ unsigned long long bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" :: "r"(at(&bar)) : "memory");
        PUBLISH
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    asm volatile(  // tells
                 "{\n.reg .b32 there, own;\nmov.u32 own, %%cluster_ctarank;\nxor.b32 own, own, 1;\n"
                 "mapa.shared::cluster.u32 there, %0, own;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" :: "r"(at(&bar)) : "memory");
    asm volatile("{\n.reg .pred p;\nL:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n"
                 "@!p bra L;\n}" :: "r"(at(&bar)) : "memory");
    y[blockIdx.x * 32 + threadIdx.x] = 1;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__global__ void __cluster_dims__(2) a_warp_leaves(int* y) {
    auto cluster = cg::this_cluster();
    if (threadIdx.x >= 32) return;
    y[blockIdx.x * 32 + threadIdx.x] = 1;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__global__ void __cluster_dims__(2) in_turn(int* y) {
    __shared__ int s[32];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = 1;
    cluster.sync();
    if (cluster.block_rank() == 0) cluster.map_shared_rank(s, 1)[threadIdx.x] = 2;
    MEET
    y[blockIdx.x * 32 + threadIdx.x] = s[threadIdx.x];  // of the other block
    cluster.sync();
}
__global__ void __cluster_dims__(2) beyond(int* y) {
    __shared__ int s[32];
    s[threadIdx.x] = 1;
    auto cluster = cg::this_cluster();
    cluster.sync();
    y[blockIdx.x * 32 + threadIdx.x] = cluster.map_shared_rank(s, 1)[threadIdx.x + 1];  // past the end
    cluster.sync();
}
}
"""


RIGHT = {"PUBLISH": 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");', "MEET": "cluster.sync();"}


def source(**words: str) -> str:
    text = SOURCE
    for word, value in (RIGHT | words).items():
        text = text.replace(word, value)
    return text


def ptx(**words: str):
    return compiled(source(**words), "sm_90a")


def outermost(done) -> set[tuple[str, int]]:
    """The findings' kinds and the lines in the kernels, not in helpers."""
    return {(f.kind.value, f.location.chain[-1].line) for f in done.findings if f.location}


def test_blocks_know_their_place_in_a_cluster():
    done = launch(ptx(), "ranks", (4, 4, 1), 32, np.zeros((4, 4, 4), np.int32))
    block_y, block_x = np.mgrid[:4, :4]
    rank = block_x % 2 + 2 * (block_y % 2)
    expected = np.stack([rank, np.full_like(rank, 4), block_x % 2, block_y // 2], axis=-1)
    np.testing.assert_array_equal(done.arrays[0], expected)


def test_a_block_reads_its_neighbours_shared_memory():
    x = np.arange(8 * 32, dtype=np.int32)
    done = launch(ptx(), "neighbours", 8, 32, x, np.zeros_like(x))
    clusters = np.roll(x.reshape(2, 4, 32), -1, axis=1) + 1000 * np.roll(np.arange(4), -1)[None, :, None]
    np.testing.assert_array_equal(done.arrays[1].reshape(2, 4, 32), clusters)
    assert done.findings == ()


@pytest.mark.parametrize("order", [None, 4, 5])
def test_blocks_add_up_in_one_of_them(order):
    x = np.arange(16 * 32, dtype=np.int32)
    done = launch(ptx(), "sums", 16, 32, x, np.zeros(8, np.int32), options=Options(order=order))
    np.testing.assert_array_equal(done.arrays[1].reshape(4, 2)[:, 0], x.reshape(4, -1).sum(axis=1))
    np.testing.assert_array_equal(done.arrays[1].reshape(4, 2)[:, 1], 17)
    assert done.findings == ()


def test_threads_of_another_block_arrive_at_a_barrier():
    done = launch(ptx(), "remote_arrivals", 4, 32, np.zeros(128, np.int32))
    assert done.arrays[0].all()
    assert done.findings == ()


def test_a_sample_of_blocks_takes_whole_clusters():
    done = launch(ptx(), "sums", 16, 32, np.ones(512, np.int32), np.zeros(8, np.int32), options=Options(blocks=(5,)))
    assert list(done.arrays[1]) == [0, 0, 128, 17, 0, 0, 0, 0]
    assert done.result.blocks == 4


def test_a_grid_that_is_no_multiple_of_the_cluster_is_refused():
    with pytest.raises(LaunchError, match=r"in clusters of \(4, 1, 1\)"):
        launch(ptx(), "sums", 6, 32, np.ones(512, np.int32), np.zeros(8, np.int32))


def test_a_barrier_that_not_all_blocks_of_a_cluster_reach_is_found():
    done = launch(ptx(), "one_block_skips", 2, 32, np.zeros(64, np.int32))
    assert outermost(done) == {("divergent-barrier", line_of(SOURCE, "// not all"))}
    assert "other threads of its cluster wait" in done.findings[0].message


def test_shared_memory_of_a_block_that_has_ended_is_out_of_bounds():
    done = launch(ptx(), "block_has_ended", 2, 32, np.ones(32, np.int32), np.zeros(32, np.int32))
    assert outermost(done) == {("out-of-bounds", line_of(SOURCE, "// too late"))}
    assert "in block 1, which has ended" in done.findings[0].message


def test_an_access_past_the_end_of_anothers_shared_memory_is_found():
    done = launch(ptx(), "beyond", 2, 32, np.zeros(64, np.int32))
    assert outermost(done) == {("out-of-bounds", line_of(SOURCE, "// past the end"))}


@pytest.mark.parametrize("entry", ["relaxed", "a_warp_leaves", "in_turn"])
def test_blocks_that_wait_for_each_other_are_right(entry: str):
    done = launch(ptx(), entry, 2, 64 if entry == "a_warp_leaves" else 32, np.zeros(64, np.int32))
    np.testing.assert_array_equal(done.arrays[0], [1] * 32 + [2 if entry == "in_turn" else 1] * 32)
    assert done.findings == ()


def test_a_relaxed_arrival_tells_nothing_without_a_fence():
    done = launch(ptx(PUBLISH=""), "relaxed", 2, 32, np.zeros(64, np.int32))
    assert outermost(done) == {("shared-race", line_of(source(), "// tells"))}


def test_a_read_races_with_the_write_of_another_block():
    done = launch(ptx(MEET="__syncthreads();"), "in_turn", 2, 32, np.zeros(64, np.int32))
    assert outermost(done) == {("shared-race", line_of(source(), "// of the other block"))}
    (finding,) = done.findings
    assert "which thread 0 of block 0 has written" in finding.message


def test_pairs_of_halves_are_not_added_in_another_blocks_memory_as_ptxas_gets_that_wrong():
    source = """
    #include <cuda_fp16.h>
    #include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(2) adds(int* y) {
        __shared__ __half2 sum;
        atomicAdd(cooperative_groups::this_cluster().map_shared_rank(&sum, 1), __half2half2(__int2half_rn(y[0])));
    }
    """
    with pytest.raises(NeedsGpu, match="f16x2 in another block's shared memory: ptxas"):
        launch(compiled(source, "sm_90"), "adds", 2, 32, np.zeros(1, np.int32))
