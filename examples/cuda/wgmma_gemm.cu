// C = A B^T in half precision with float32 sums, by `wgmma` on tiles that tensor copies bring (Hopper only, sm_90a).
//
// What limits it: the tensor cores, once their operands come quickly enough. Nobody spends registers or instructions on
// loading: one warp asks for boxes of A and B, which the copies put down with a swizzle of 128 bytes, as the tensor
// cores read them. STAGES boxes are under way at any time. Each of two warpgroups computes 64 rows of the block's tile.
// Left to do: more rows for each warpgroup, stores through shared memory, blocks that stay for several tiles.

#include <cuda_fp16.h>

#include <cstdint>

constexpr int BM = 128;  // rows of C in a block: 64 for each of two warpgroups
constexpr int BN = 128;  // columns
constexpr int BK = 64;   // 128 bytes, a line of the swizzle
constexpr int STAGES = 4;
constexpr int CONSUMERS = 256;  // threads that multiply; one warp more brings the boxes

struct Stage {
    half a[BM][BK];
    half b[BN][BK];
};

struct alignas(64) TensorMap {
    char opaque[128];
};

__device__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ void arrive_expecting(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(
            shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// The box at (column, row) of a matrix; zeros stand for what lies outside.
__device__ void copy_box(void* to, const TensorMap* from, int column, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
            "r"(shared_address(to)),
        "l"(from), "r"(column), "r"(row), "r"(shared_address(barrier))
        : "memory");
}

// Rows of 128 bytes with their swizzle: groups of 8 rows follow each other.
__device__ uint64_t descriptor(const half* matrix) {
    const uint64_t address = (shared_address(matrix) & 0x3ffff) >> 4, unused = 1, group = 8 * BK * sizeof(half) >> 4;
    return address | unused << 16 | group << 32 | 1ull << 62;
}

// d += A B^T for 64 rows of A, BN rows of B and 16 columns of both.
__device__ void multiply(float (&d)[BN / 2], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
              "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
              "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
              "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
              "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b));
}

// A: M x K, B: N x K, C: M x N; K is a multiple of 8. Launch with CONSUMERS + 32 threads, STAGES * sizeof(Stage) bytes of
// shared memory, grid.x blocks for N, grid.y for M. The boxes of the maps are BM x BK and BN x BK.
extern "C" __global__ void __launch_bounds__(CONSUMERS + 32)
    wgmma_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, half* C, int M, int N,
               int K) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Stage* stage = reinterpret_cast<Stage*>(memory);
    __shared__ uint64_t full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            init(&full[s], 1);
            init(&empty[s], CONSUMERS / 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    const int row = blockIdx.y * BM, column = blockIdx.x * BN, steps = (K + BK - 1) / BK;
    if (threadIdx.x >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == CONSUMERS) {
            for (int k = 0; k < steps; k++) {
                const int s = k % STAGES, round = k / STAGES;
                wait(&empty[s], (round & 1) ^ 1);  // at once in the first round
                arrive_expecting(&full[s], sizeof(Stage));
                copy_box(stage[s].a, &map_a, k * BK, row, &full[s]);
                copy_box(stage[s].b, &map_b, k * BK, column, &full[s]);
            }
        }
        return;
    }

    const int group = threadIdx.x / 128;
    float d[BN / 2] = {};
    for (int k = 0; k < steps; k++) {
        const int s = k % STAGES, round = k / STAGES;
        wait(&full[s], round & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int inner = 0; inner < BK; inner += 16) {
            multiply(d, descriptor(&stage[s].a[64 * group][inner]), descriptor(&stage[s].b[0][inner]));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (threadIdx.x % 128 == 0) {
            arrive(&empty[s]);
        }
    }

    // A thread has pairs of neighbours in two rows of each 8 columns.
    const int first = row + 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4, pair = column + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
        const int r = first + i / 2 % 2 * 8, c = pair + i / 4 * 8 + i % 2;
        if (r < M && c < N) {
            C[static_cast<size_t>(r) * N + c] = __float2half(d[i]);
        }
    }
}
