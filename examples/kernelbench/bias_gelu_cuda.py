"""Bias and GELU in one kernel after the library's matrix product; one element a thread, memory bandwidth limits it."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>

__global__ void bias_gelu(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ out,
                          int count, int cols) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        const float v = x[i] + bias[i % cols];
        out[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
}

torch::Tensor run_bias_gelu(torch::Tensor x, torch::Tensor bias) {
    auto out = torch::empty_like(x);
    const int count = x.numel();
    const int threads = 256;
    const int blocks = (count + threads - 1) / threads;
    bias_gelu<<<blocks, threads>>>(x.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), count,
                                   bias.size(0));
    return out;
}
"""

fused = load_inline(
    name="fused_bias_gelu",
    cpp_sources="torch::Tensor run_bias_gelu(torch::Tensor x, torch::Tensor bias);",
    cuda_sources=cuda_source,
    functions=["run_bias_gelu"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return fused.run_bias_gelu(torch.matmul(x, self.linear.weight.t()), self.linear.bias)
