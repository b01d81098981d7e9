// One step of the conjugate gradient method in float32 for the five-point Laplacian of a grid, written kernel by kernel:
// q = A p, three sums over all points, x and r moved along p and q, and the next direction.
//
// What limits it: memory bandwidth, and for small grids the launches. A step goes seven times through memory where the
// data would have to be read once and written once: `laplacian` could sum p q on the way, `advance` r r. A sum takes two
// launches, so that it is the same in every run: one value from each block, then one block that adds these.

constexpr int THREADS = 256;  // a power of two

// What all threads of a block bring, in its first thread.
__device__ float block_sum(float value) {
    __shared__ float sums[THREADS];
    sums[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
        __syncthreads();
    }
    return sums[0];
}

// Four times a point less its neighbours; beyond the border there are zeros.
extern "C" __global__ void laplacian(const float* __restrict__ p, float* __restrict__ q, int height, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= height * width) {
        return;
    }
    int x = i % width, y = i / width;
    float sum = 4.0f * p[i];
    if (x > 0) sum -= p[i - 1];
    if (x < width - 1) sum -= p[i + 1];
    if (y > 0) sum -= p[i - width];
    if (y < height - 1) sum -= p[i + width];
    q[i] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
dot(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ partial, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        sum = fmaf(a[i], b[i], sum);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
    }
}

// One block.
extern "C" __global__ void __launch_bounds__(THREADS)
total(const float* __restrict__ partial, float* __restrict__ out, int count) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        sum += partial[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *out = sum;
    }
}

extern "C" __global__ void advance(const float* __restrict__ x, const float* __restrict__ r, const float* __restrict__ p,
                                   const float* __restrict__ q, const float* __restrict__ rr,
                                   const float* __restrict__ pq, float* __restrict__ x_new, float* __restrict__ r_new,
                                   int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float alpha = *rr / *pq;
        x_new[i] = x[i] + alpha * p[i];
        r_new[i] = r[i] - alpha * q[i];
    }
}

extern "C" __global__ void turn(const float* __restrict__ r_new, const float* __restrict__ p,
                                const float* __restrict__ rr_new, const float* __restrict__ rr,
                                float* __restrict__ p_new, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        p_new[i] = r_new[i] + *rr_new / *rr * p[i];
    }
}
