// Row-wise softmax, one block per row, in the three textbook passes: maximum, sum of exponentials, result.
//
// What limits it: memory bandwidth. The compulsory traffic is one read and one write of every element. The kernel
// reads each row three times; the second and third read are cheap only while the rows in flight fit into the caches,
// which the long rows here (50,257 columns) put to the test. Each element costs two exponentials, and each reduction
// a chain of barriers during which the block has no loads in flight.

namespace ops {

// Launch with THREADS threads, a power of two.
template <typename T, int THREADS>
__global__ void softmax(const T* __restrict__ x, T* __restrict__ y, int cols) {
    __shared__ float scratch[THREADS];

    const int tid = threadIdx.x;
    const size_t row = (size_t)blockIdx.x * cols;

    float peak = -INFINITY;
    for (int i = tid; i < cols; i += THREADS) {
        peak = fmaxf(peak, (float)x[row + i]);
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
    for (int i = tid; i < cols; i += THREADS) {
        sum += expf((float)x[row + i] - peak);
    }
    scratch[tid] = sum;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (tid < s) {
            scratch[tid] += scratch[tid + s];
        }
        __syncthreads();
    }
    sum = scratch[0];

    for (int i = tid; i < cols; i += THREADS) {
        y[row + i] = (T)(expf((float)x[row + i] - peak) / sum);
    }
}

}  // namespace ops
