// Cross-entropy loss of float32 logits against integer targets, one block per row: log(sum(exp(x))) - x[target]. A
// target outside the vocabulary (padding, -100) gives a loss of 0.
//
// What limits it: memory bandwidth. The compulsory traffic is one read of the logits, 4 bytes an element; the output
// is one float a row. The row is read twice, for the maximum and for the sum, and a row of a large vocabulary (200 KB
// at 50,257) is long enough that the second read competes for cache with all other rows in flight.

#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS)
cross_entropy(const float* __restrict__ logits, const long long* __restrict__ target, float* __restrict__ loss,
              int vocab) {
    __shared__ float scratch[THREADS];

    const int tid = threadIdx.x;
    const float* row = logits + (size_t)blockIdx.x * vocab;

    float peak = -INFINITY;
    for (int i = tid; i < vocab; i += THREADS) {
        peak = fmaxf(peak, row[i]);
    }
    scratch[tid] = peak;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (tid < s) {
            scratch[tid] = fmaxf(scratch[tid], scratch[tid + s]);
        }
        __syncthreads();
    }
    peak = scratch[0];
    __syncthreads();  // everyone has read the maximum before scratch is used again

    float sum = 0.0f;
    for (int i = tid; i < vocab; i += THREADS) {
        sum += expf(row[i] - peak);
    }
    scratch[tid] = sum;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (tid < s) {
            scratch[tid] += scratch[tid + s];
        }
        __syncthreads();
    }

    if (tid == 0) {
        long long t = target[blockIdx.x];
        loss[blockIdx.x] = (t >= 0 && t < vocab) ? logf(scratch[0]) + peak - row[t] : 0.0f;
    }
}
