// RMSNorm over the rows of a float32 matrix: y = x / sqrt(mean(x^2) + eps) * weight. One block per row.
//
// What limits it: memory bandwidth. The compulsory traffic is one read of x and one write of y, 8 bytes an element,
// for about 4 flops; current GPUs need tens of flops per byte before arithmetic matters. The row is read twice, and
// whether the second read comes from cache depends on how many rows are in flight at once. Between the two passes the
// whole block waits for a reduction of log2(blockDim.x) barriers, during which it asks nothing of memory.

constexpr int MAX_THREADS = 1024;

// blockDim.x: a power of two up to MAX_THREADS.
extern "C" __global__ void rmsnorm(const float* x, const float* weight, float* y, int cols, float eps) {
    __shared__ float partial[MAX_THREADS];

    const float* row = x + (size_t)blockIdx.x * cols;
    float* out = y + (size_t)blockIdx.x * cols;

    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float v = row[i];
        sum += v * v;
    }
    partial[threadIdx.x] = sum;
    __syncthreads();

    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) {
            partial[threadIdx.x] += partial[threadIdx.x + s];
        }
        __syncthreads();
    }

    float scale = rsqrtf(partial[0] / cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        out[i] = row[i] * scale * weight[i];
    }
}
