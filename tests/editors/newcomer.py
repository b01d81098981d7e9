"""The kernel of somebody who has read nothing of ours: thirty lines, no workload, and a guard that is missing."""

KERNEL = """\
// y[r, c] = x[r, c] * scale[c] + bias[c], the last step of each of our layers.
#include <cuda_runtime.h>

namespace layers {

constexpr int kThreads = 256;

/// One thread for an element; the rows lie one after another.
__global__ void scale_bias(const float* __restrict__ x, const float* __restrict__ scale,
                           const float* __restrict__ bias, float* __restrict__ y,
                           int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int c = i % cols;
    y[i] = x[i] * scale[c] + bias[c];
}

int blocks_for(int elements) {
    return (elements + kThreads - 1) / kThreads;
}

/// Scales `rows` rows of `cols` elements; returns what the launch says.
cudaError_t run_scale_bias(const float* x, const float* scale, const float* bias, float* y,
                           int rows, int cols, cudaStream_t stream) {
    scale_bias<<<blocks_for(rows * cols), kThreads, 0, stream>>>(x, scale, bias, y, rows, cols);
    return cudaGetLastError();
}

}  // namespace layers
"""
