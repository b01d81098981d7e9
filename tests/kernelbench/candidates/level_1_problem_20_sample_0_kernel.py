import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

leaky_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void leaky_kernel(const float* x, float* out, int size, float slope) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < size) {
        float v = x[idx];
        out[idx] = v > 0.0f ? v : slope * v;
    }
}

torch::Tensor leaky_cuda(torch::Tensor x, double slope) {
    auto size = x.numel();
    auto out = torch::empty_like(x);

    const int block_size = 256;
    const int num_blocks = (size + block_size - 1) / block_size;

    leaky_kernel<<<num_blocks, block_size>>>(x.data_ptr<float>(), out.data_ptr<float>(), size, static_cast<float>(slope));

    return out;
}
"""

leaky_cpp_source = "torch::Tensor leaky_cuda(torch::Tensor x, double slope);"

leaky = load_inline(
    name="leaky",
    cpp_sources=leaky_cpp_source,
    cuda_sources=leaky_source,
    functions=["leaky_cuda"],
    verbose=False,
    extra_cflags=[""],
    extra_ldflags=[""],
)


class ModelNew(nn.Module):
    def __init__(self, negative_slope: float = 0.01):
        super().__init__()
        self.negative_slope = negative_slope
        self.leaky = leaky

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leaky.leaky_cuda(x, self.negative_slope)
