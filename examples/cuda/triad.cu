// z = x + a y in float32: tiles come by bulk copies, through a ring of stages in shared memory (Hopper and later).
//
// What limits it: DRAM, three floats for each multiply-add. One warp asks for the tiles and the others compute, so that
// STAGES tiles are under way at any time, whatever the registers and the occupancy are. Each stage has two barriers:
// `full` ends a phase when all bytes of a tile have come, `empty` when all threads have read them.

#include <cstdint>

constexpr int TILE = 1024;    // floats of x, and of y, in a stage
constexpr int STAGES = 4;
constexpr int CONSUMERS = 128;  // threads that compute; one warp more brings the tiles

struct Stage {
    alignas(128) float x[TILE];
    float y[TILE];
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

__device__ void copy(float* to, const float* from, int bytes, uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// Floats of a tile that bulk copies bring: whole pieces of 16 bytes.
__device__ int brought(int tile, int n) {
    return min(TILE, n - tile * TILE) & ~3;
}

// Launch with CONSUMERS + 32 threads and any number of blocks. x, y and z start at multiples of 16 bytes.
extern "C" __global__ void triad(const float* x, const float* y, float* z, float a, int n) {
    __shared__ Stage stage[STAGES];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            init(&full[s], 1);
            init(&empty[s], CONSUMERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    const int tiles = (n + TILE - 1) / TILE;
    if (threadIdx.x == CONSUMERS) {
        for (int tile = blockIdx.x, k = 0; tile < tiles; tile += gridDim.x, k++) {
            const int s = k % STAGES, round = k / STAGES, bytes = brought(tile, n) * sizeof(float);
            wait(&empty[s], (round & 1) ^ 1);  // at once in the first round
            arrive_expecting(&full[s], 2 * bytes);
            if (bytes > 0) {
                copy(stage[s].x, x + tile * TILE, bytes, &full[s]);
                copy(stage[s].y, y + tile * TILE, bytes, &full[s]);
            }
        }
    } else if (threadIdx.x < CONSUMERS) {
        for (int tile = blockIdx.x, k = 0; tile < tiles; tile += gridDim.x, k++) {
            const int s = k % STAGES, round = k / STAGES, first = tile * TILE, there = brought(tile, n);
            wait(&full[s], round & 1);
            for (int i = threadIdx.x; i < there; i += CONSUMERS) {
                z[first + i] = stage[s].x[i] + a * stage[s].y[i];
            }
            arrive(&empty[s]);
            const int left = first + there + threadIdx.x;  // up to three floats of the last tile
            if (left < min(first + TILE, n)) {
                z[left] = x[left] + a * y[left];
            }
        }
    }
}
