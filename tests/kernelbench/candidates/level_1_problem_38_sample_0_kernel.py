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

__global__ void l1_rows(const float* x, float* y, int dim) {
    __shared__ float shared[512];
    const float* in = x + (int64_t)blockIdx.x * dim;
    float* out = y + (int64_t)blockIdx.x * dim;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) sum += fabsf(in[i]);
    const float mean = block_sum<512>(sum, shared) / dim;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) out[i] = in[i] / mean;
}

torch::Tensor l1_norm(torch::Tensor x) {
    auto y = at::empty_like(x);
    l1_rows<<<x.size(0), 512>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""

cpp_source = """
torch::Tensor l1_norm(torch::Tensor x);
"""

ext = load_inline(
    name="l1",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['l1_norm'],
    verbose=False,
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.l1_norm(x)
