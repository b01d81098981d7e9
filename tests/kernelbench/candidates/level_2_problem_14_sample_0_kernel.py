import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

template <int THREADS>
__device__ float block_sum(float v, float* shared) {
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    float total = shared[0];
    __syncthreads();
    return total;
}

template <int THREADS>
__device__ float block_max(float v, float* shared) {
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    float top = shared[0];
    __syncthreads();
    return top;
}

__global__ void column_sums(const float* w, float* sums, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    float sum = 0.0f;
    for (int r = 0; r < rows; ++r) sum += w[(int64_t)r * cols + c];
    sums[c] = sum;
}

__global__ void dot_rows(const float* x, const float* sums, float* out, int cols, float scale) {
    __shared__ float shared[256];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) sum += x[(int64_t)blockIdx.x * cols + c] * sums[c];
    sum = block_sum<256>(sum, shared);
    if (threadIdx.x == 0) out[blockIdx.x] = sum * scale;
}

torch::Tensor gemm_sum(torch::Tensor x, torch::Tensor w, double scale) {
    int rows = w.size(0), cols = w.size(1);
    auto sums = torch::empty({cols}, w.options());
    auto out = torch::empty({x.size(0), 1}, x.options());
    column_sums<<<(cols + 255) / 256, 256>>>(w.data_ptr<float>(), sums.data_ptr<float>(), rows, cols);
    dot_rows<<<x.size(0), 256>>>(x.data_ptr<float>(), sums.data_ptr<float>(), out.data_ptr<float>(), cols, (float)scale);
    return out;
}
"""

cpp_source = """
torch::Tensor gemm_sum(torch::Tensor x, torch::Tensor w, double scale);
"""

ext = load_inline(
    name="gemm_sum",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['gemm_sum'],
    verbose=False,
)


class ModelNew(nn.Module):
    """The sum over the outputs is taken before the product: it is one of a matrix and a vector then."""

    def __init__(self, input_size, hidden_size, scaling_factor):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size, input_size))
        self.scaling_factor = scaling_factor

    def forward(self, x):
        return ext.gemm_sum(x, self.weight, self.scaling_factor / 2)
