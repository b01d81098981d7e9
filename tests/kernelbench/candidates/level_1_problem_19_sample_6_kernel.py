import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_in_place(float* x, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n && x[i] < 0.0f) x[i] = 0.0f;
}

torch::Tensor relu_(torch::Tensor x) {
    int64_t n = x.numel();
    relu_in_place<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), n);
    return x;
}
"""

cpp_source = """
torch::Tensor relu_(torch::Tensor x);
"""

ext = load_inline(
    name="relu_in_place",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['relu_'],
    verbose=False,
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.relu_(x)
