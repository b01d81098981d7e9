"""A block for each row, a shared-memory tree for its sum; memory bandwidth limits it, each value is read once."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DEVICE = r"""
#include <torch/extension.h>

constexpr int THREADS = 256;

__global__ void mean_square(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out,
                            int cols) {
    __shared__ float partial[THREADS];
    const float* row = x + static_cast<long long>(blockIdx.x) * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += THREADS) {
        sum += row[i] * row[i] * weight[i];
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = partial[0] / cols;
    }
}
"""

HOST = r"""
torch::Tensor run_mean_square(torch::Tensor x, torch::Tensor weight) {
    TORCH_CHECK(x.is_contiguous() && x.dim() == 2, "x must be a contiguous matrix");
    auto out = torch::empty({x.size(0)}, x.options());
    mean_square<<<x.size(0), THREADS>>>(x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(),
                                        x.size(1));
    return out;
}
"""

extension = load_inline(
    name="mean_square",
    cpp_sources=["torch::Tensor run_mean_square(torch::Tensor x, torch::Tensor weight);"],
    cuda_sources=[DEVICE, HOST],
    functions=["run_mean_square"],
)


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.run_mean_square(x.contiguous(), self.weight)
