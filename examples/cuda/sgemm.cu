// C = A B in float32, row-major, with square tiles of A and B in shared memory and one element of C per thread.
//
// What limits it: not DRAM. A product of 2048 x 2048 matrices does 17.2 GFLOP on 48 MiB of compulsory traffic, about
// 340 flops a byte, so the float32 units should be the limit. But each multiply-add here needs two values from shared
// memory, and shared-memory loads issue at a fraction of the rate of multiply-adds: that ratio is the limit until
// each thread computes more than one element. A larger TILE cuts the traffic to global memory (each element of A and
// B is fetched once per TILE outputs), not the shared-memory loads per multiply-add.

constexpr int TILE = 16;

// A: M x K, B: K x N, C: M x N. Launch with TILE x TILE threads; grid.x covers N, grid.y covers M.
extern "C" __global__ void sgemm(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty;
    const int col = blockIdx.x * TILE + tx;

    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;
        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;
        __syncthreads();

#pragma unroll
        for (int k = 0; k < TILE; k++) {
            acc += As[ty][k] * Bs[k][tx];
        }
        __syncthreads();
    }

    if (row < M && col < N) {
        C[row * N + col] = acc;
    }
}
