"""Phases of mbarriers, with arrivals, parities, states and time-outs, as Hopper's kernels use them."""

import numpy as np
from emulator_kit import HOPPER, compiled, launch, line_of

from kernel_lsp.emulate.findings import FindingKind

SOURCE = (
    HOPPER
    + r"""
#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" {
// Two warps hand a value to and fro, a phase of `full` and one of `empty` for each.
__global__ void to_and_fro(const int* x, int* y, int n) {
    __shared__ u64 full, empty;
    __shared__ int slot[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) { init(&full, 32); init(&empty, 32); }
    __syncthreads();
    x += blockIdx.x * 32 * n;
    y += blockIdx.x * 32 * n;
    for (int k = 0; k < n; ++k) {
        if (warp == 0) {
            wait(&empty, (k & 1) ^ 1);
            slot[lane] = x[k * 32 + lane];
            arrive(&full);
        } else {
            wait(&full, k & 1);
            y[k * 32 + lane] = slot[31 - lane];
            arrive(&empty);
        }
    }
}
__global__ void by_state(const int* x, int* y) {
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int s[64];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    for (int k = 0; k < 3; ++k) {
        s[threadIdx.x] = x[threadIdx.x] + k;
        auto token = bar.arrive();
        bar.wait(cuda::std::move(token));
        int other = s[63 - threadIdx.x];
        bar.arrive_and_wait();
        y[k * 64 + threadIdx.x] = other;
    }
}
__global__ void states(unsigned* counts, int* over) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 4);
    __syncthreads();
    u64 state;
    unsigned count;
    int done;
    asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], 1;" : "=l"(state) : "r"(at(&bar)));
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(count) : "l"(state));
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.shared::cta.b64 p, [%1], %2;\nselp.s32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(at(&bar)), "l"(state));
    counts[threadIdx.x] = count;
    over[threadIdx.x] = done;
}
__global__ void polls(int* y) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 1);
    __syncthreads();
    if (threadIdx.x == 32) {
        y[1] = 7;
        arrive(&bar);
    }
    if (threadIdx.x == 0) {
        while (!ptx::mbarrier_test_wait_parity(&bar, 0)) {}
        y[0] = 5;
    }
}
__global__ void gives_up_waiting(int* y) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        y[0] = ptx::mbarrier_try_wait_parity(&bar, 0);
        y[1] = ptx::mbarrier_try_wait_parity(&bar, 1);
    }
}
__global__ void drops(int* y) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 2);
    __syncthreads();
    if (threadIdx.x == 32) asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" :: "r"(at(&bar)) : "memory");
    if (threadIdx.x == 0) {
        for (int k = 0; k < 3; ++k) { arrive(&bar); wait(&bar, k & 1); }
        y[0] = 1;
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(at(&bar)) : "memory");
    }
}
__global__ void elects(int* y) {
    unsigned leader = 99, chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync %0|p, 0xfffffff0;\nselp.u32 %1, 1, 0, p;\n}"
                 : "=r"(leader), "=r"(chosen));
    y[threadIdx.x] = 100 * leader + chosen;
}
__global__ void no_order_after_init(int* y) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 64);
    arrive(&bar);  // unordered
    wait(&bar, 0);
    y[threadIdx.x] = 1;
}
__global__ void never_initialised(int* y) {
    __shared__ u64 bar;
    arrive(&bar);  // nobody has
    y[threadIdx.x] = 1;
}
__global__ void too_often(int* y) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 2);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" :: "r"(at(&bar)) : "memory");
        arrive(&bar);
        arrive(&bar);  // once too often
        asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;" :: "r"(at(&bar)) : "memory");
    }
    y[threadIdx.x] = 1;
}
#define THREE_ARRIVE(NAME, COUNT)                                      \
    __global__ void NAME(int* y, int n) {                              \
        __shared__ u64 bar;                                            \
        if (threadIdx.x == 0) init(&bar, COUNT);                       \
        __syncthreads();                                               \
        if (threadIdx.x < 32) wait(&bar, 0);                           \
        int sum = 0;                                                   \
        for (int k = 0; k < n; ++k) sum += y[k] % 7;                   \
        if (threadIdx.x >= 32 && threadIdx.x % 32 == 0) arrive(&bar);  \
        y[n + threadIdx.x] = sum;                                      \
    }
THREE_ARRIVE(one_of_three, 1)
THREE_ARRIVE(all_three, 3)
__global__ void reads_unwaited(const int* x, int* y) {
    __shared__ u64 bar;
    __shared__ int s[64];
    if (threadIdx.x == 0) init(&bar, 32);
    __syncthreads();
    if (threadIdx.x < 32) {
        s[threadIdx.x] = x[threadIdx.x];
        arrive(&bar);
    } else {
        y[threadIdx.x] = s[threadIdx.x - 32];  // without waiting
    }
}
}
"""
)


def run(entry: str, grid, block, *arrays, **options):
    return launch(compiled(SOURCE, "sm_90a"), entry, grid, block, *arrays, **options)


def test_two_warps_hand_values_to_and_fro():
    x = np.arange(2 * 5 * 32, dtype=np.int32)
    done = run("to_and_fro", 2, 64, x, np.zeros_like(x), 5)
    np.testing.assert_array_equal(done.arrays[1].reshape(-1, 32), x.reshape(-1, 32)[:, ::-1])
    assert done.findings == ()


def test_a_barrier_of_the_library_waits_by_state():
    x = np.arange(64, dtype=np.int32)
    done = run("by_state", 1, 64, x, np.zeros(192, np.int32))
    np.testing.assert_array_equal(done.arrays[1].reshape(3, 64), x[::-1] + np.arange(3)[:, None])
    assert done.findings == ()


def test_a_state_tells_the_arrivals_that_were_pending_and_its_phase():
    done = run("states", 1, 3, np.zeros(3, np.uint32), np.zeros(3, np.int32))
    assert sorted(done.arrays[0]) == [2, 3, 4]
    assert list(done.arrays[1]) == [0, 0, 0]


def test_polling_threads_let_others_go_on():
    assert list(run("polls", 1, 64, np.zeros(2, np.int32)).arrays[0]) == [5, 7]


def test_try_wait_ends_without_success_when_nobody_else_can_go_on():
    done = run("gives_up_waiting", 1, 32, np.full(2, 9, np.int32))
    assert list(done.arrays[0]) == [0, 1]
    assert done.findings == ()


def test_a_thread_that_drops_out_is_expected_no_more():
    done = run("drops", 1, 64, np.zeros(1, np.int32))
    assert list(done.arrays[0]) == [1]
    assert done.findings == ()


def test_the_lowest_member_is_elected():
    done = run("elects", 1, 32, np.zeros(32, np.int32))
    assert list(done.arrays[0][4:6]) == [401, 400]


def test_uses_of_a_barrier_are_found_that_nothing_orders_after_its_init():
    done = run("no_order_after_init", 1, 64, np.zeros(64, np.int32))
    assert ("shared-race", line_of(SOURCE, "// unordered")) in {(k, at) for k, at in outermost(done)}


def outermost(done) -> set[tuple[str, int]]:
    """The findings' kinds and the lines in the kernels, not in helpers."""
    return {(f.kind.value, f.location.chain[-1].line) for f in done.findings if f.location}


def test_misused_barriers_are_found():
    done = run("never_initialised", 1, 32, np.zeros(32, np.int32))
    assert outermost(done) == {("misused-mbarrier", line_of(SOURCE, "// nobody has"))}
    done = run("too_often", 1, 32, np.zeros(32, np.int32))
    assert outermost(done) == {("misused-mbarrier", line_of(SOURCE, "// once too often"))}


def test_a_thread_whose_phase_is_overtaken_by_the_next_one_is_found():
    y = np.ones(8 + 128, np.int32)
    (finding,) = run("one_of_three", 1, 128, y, 8).findings
    assert finding.kind is FindingKind.MISUSED_MBARRIER
    assert "waits for phase 0" in finding.message
    assert "phase 1 ends before it can go on" in finding.message
    assert run("all_three", 1, 128, y, 8).findings == ()


def test_a_value_handed_over_is_raced_for_by_who_does_not_wait():
    done = run("reads_unwaited", 1, 64, np.arange(64, dtype=np.int32), np.zeros(64, np.int32))
    assert "shared-race" in {kind for kind, _ in outermost(done)}
