import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void l2_rows(const float* __restrict__ x, float* __restrict__ y, int dim) {
    __shared__ float warps[32];
    const float* in = x + (size_t)blockIdx.x * dim;
    float sum = 0.f;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) sum += in[i] * in[i];
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.f;
        for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (threadIdx.x == 0) warps[0] = sqrtf(sum);
    }
    __syncthreads();
    const float norm = warps[0];
    for (int i = threadIdx.x; i < dim; i += blockDim.x) y[(size_t)blockIdx.x * dim + i] = in[i] / norm;
}

torch::Tensor l2_norm(torch::Tensor x) {
    auto y = torch::empty_like(x);
    l2_rows<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""

cpp_source = """
torch::Tensor l2_norm(torch::Tensor x);
"""

ext = load_inline(
    name="l2",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['l2_norm'],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = ext

    def forward(self, x):
        return self.norm.l2_norm(x)
