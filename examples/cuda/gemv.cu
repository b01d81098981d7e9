// y = A x in float32, A row-major, one block per row: threads walk the row, a tree in shared memory adds what they found.
//
// What limits it: memory bandwidth. Each element of A is read once and used once, 4 bytes for 2 flops; x is small and
// comes from cache after the first rows. What can be won is more bytes in flight for each thread (wider loads, several
// rows at a time), and for short rows that a block is too many threads for one.

constexpr int THREADS = 256;  // a power of two

extern "C" __global__ void __launch_bounds__(THREADS)
gemv(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float sums[THREADS];
    const float* row = a + (long long)blockIdx.x * cols;

    float sum = 0.0f;
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        sum = fmaf(row[col], x[col], sum);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();

    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        y[blockIdx.x] = sums[0];
    }
}
