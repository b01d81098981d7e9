// C = A B^T in half precision with float32 sums, by `wgmma` on tiles that tensor copies bring (Hopper only, sm_90a).
//
// What limits it: the tensor cores, once their operands come quickly enough. Nobody spends registers or instructions on
// loading: one warp asks for boxes of A and B, which the copies put down with a swizzle of 128 bytes, as the tensor
// cores read them. STAGES boxes are under way at any time. Each of two warpgroups computes 64 rows of 256 columns, the
// widest product there is, so that each byte of shared memory is used most often; one product runs while the next is
// asked for. Blocks stay for several tiles: the boxes of the next come while the sums of the last are stored, from
// shared memory by further tensor copies. Blocks that run at once share rows and columns, which then come from L2.
// Left to do: clusters, whose blocks would share boxes of B (multicast).

#include <cuda_fp16.h>

#include <cstdint>

constexpr int BM = 128;  // rows of C in a tile: 64 for each of two warpgroups
constexpr int BN = 256;  // columns
constexpr int BK = 64;   // 128 bytes, a line of the swizzle
constexpr int STAGES = 4;
constexpr int CONSUMERS = 256;  // threads that multiply; one warp more brings the boxes
constexpr int BAND = 16;        // rows of tiles that blocks go through together

struct Stage {
    half a[BM][BK];
    half b[BN][BK];
};

// What the block has in shared memory; `out` is two boxes of C for each warpgroup: one is filled, the other stored.
struct Shared {
    Stage stage[STAGES];
    half out[CONSUMERS / 128][2][64][64];
    uint64_t full[STAGES], empty[STAGES];
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

// The part of the box that lies in the matrix goes to (column, row).
__device__ void store_box(const TensorMap* to, int column, int row, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(to),
                 "r"(column), "r"(row), "r"(shared_address(from))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Returns when all but the last PENDING boxes of this thread have been read, so that others may take their place.
template <int PENDING>
__device__ void wait_stored() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Rows of 128 bytes with their swizzle: groups of 8 rows follow each other.
__device__ uint64_t descriptor(const half* matrix) {
    const uint64_t address = (shared_address(matrix) & 0x3ffff) >> 4, unused = 1, group = 8 * BK * sizeof(half) >> 4;
    return address | unused << 16 | group << 32 | 1ull << 62;
}

// d += A B^T for 64 rows of A, BN rows of B and 16 columns of both.
__device__ void multiply(float (&d)[BN / 2], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
            "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
            "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
            "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
          "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
          "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
          "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
          "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
          "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b));
}

// Returns when all but the last PENDING steps of this warpgroup have been multiplied.
template <int PENDING>
__device__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

__device__ uint32_t pair(float low, float high) {
    const half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
}

__device__ void wait_for_group(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// Write a warp's 16 rows of 64 columns of sums, that begin at d, with the swizzle of 128 bytes. In a product, a thread
// has pairs of neighbours in two rows of each 8 columns: four matrices of 8 x 8 are 16 rows of 16 columns.
__device__ void put_down(half (*box)[64], const float* d) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int piece = 2 * i + lane / 16;  // of 8 columns
        const float* v = d + 8 * i;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         shared_address(&box[row][(piece ^ row % 8) * 8])),
                     "r"(pair(v[0], v[1])), "r"(pair(v[2], v[3])), "r"(pair(v[4], v[5])), "r"(pair(v[6], v[7]))
                     : "memory");
    }
}

// Where a tile of C begins. Blocks run at once on neighbouring tiles: of BAND rows of tiles, column by column.
struct Tile {
    int row, column;
};

__device__ Tile tile_at(int number, int rows, int columns) {
    const int band = number / (BAND * columns) * BAND, height = min(BAND, rows - band), at = number - band * columns;
    return {(band + at % height) * BM, at / height * BN};
}

// A: M x K, B: N x K, C: M x N; N and K are multiples of 8. Launch any number of blocks of CONSUMERS + 32 threads, at
// best one for each multiprocessor, with sizeof(Shared) bytes of shared memory. The maps' boxes are BM x BK of A,
// BN x BK of B and 64 x 64 of C.
extern "C" __global__ void __launch_bounds__(CONSUMERS + 32, 1)
    wgmma_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
               const __grid_constant__ TensorMap map_c, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            init(&shared.full[s], 1);
            init(&shared.empty[s], CONSUMERS / 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    const int rows = (M + BM - 1) / BM, columns = (N + BN - 1) / BN, steps = (K + BK - 1) / BK;
    int n = 0;  // steps of all tiles so far, for the stage and its round
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS) {
            for (int number = blockIdx.x; number < rows * columns; number += gridDim.x) {
                const Tile tile = tile_at(number, rows, columns);
                for (int k = 0; k < steps; k++, n++) {
                    const int s = n % STAGES, round = n / STAGES;
                    wait(&shared.empty[s], (round & 1) ^ 1);  // at once in the first round
                    arrive_expecting(&shared.full[s], sizeof(Stage));
                    copy_box(shared.stage[s].a, &map_a, k * BK, tile.row, &shared.full[s]);
                    copy_box(shared.stage[s].b, &map_b, k * BK, tile.column, &shared.full[s]);
                }
            }
        }
        return;
    }

    const int group = threadIdx.x / 128;
    const bool leads = threadIdx.x % 128 == 0;
    for (int number = blockIdx.x; number < rows * columns; number += gridDim.x) {
        float d[BN / 2] = {};
        for (int k = 0; k < steps; k++, n++) {
            const int s = n % STAGES, round = n / STAGES;
            wait(&shared.full[s], round & 1);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int inner = 0; inner < BK; inner += 16) {
                const Stage& stage = shared.stage[s];
                multiply(d, descriptor(&stage.a[64 * group][inner]), descriptor(&stage.b[0][inner]));
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            wait_products<1>();
            if (leads && k > 0) {
                arrive(&shared.empty[(n - 1) % STAGES]);
            }
        }
        wait_products<0>();
        if (leads && steps > 0) {
            arrive(&shared.empty[(n - 1) % STAGES]);
        }

        const Tile tile = tile_at(number, rows, columns);
#pragma unroll
        for (int i = 0; i < BN / 64; i++) {
            auto box = shared.out[group][i % 2];
            if (leads) {
                wait_stored<1>();
            }
            wait_for_group(group);
            put_down(box, d + 32 * i);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            wait_for_group(group);
            if (leads) {
                store_box(&map_c, tile.column + 64 * i, tile.row + 64 * group, box);
            }
        }
    }
    if (leads) {
        wait_stored<0>();
    }
}
