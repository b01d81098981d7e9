import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void scale_residual_kernel(const float* in, float* out, int64_t n, float scale) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = in[i];
    v = v * scale + v;
    out[i] = v;
}

torch::Tensor scale_residual_cuda(torch::Tensor in, double scale) {
    auto out = torch::empty_like(in);
    int64_t n = in.numel();
    int threads = 256;
    scale_residual_kernel<<<(n + threads - 1) / threads, threads>>>(in.data_ptr<float>(), out.data_ptr<float>(), n, (float)scale);
    return out;
}
"""

scale_residual = load_inline(
    name="scale_residual",
    cpp_sources="torch::Tensor scale_residual_cuda(torch::Tensor in, double scale);",
    cuda_sources=source,
    functions=["scale_residual_cuda"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.matmul(x)
        return scale_residual.scale_residual_cuda(x, self.scaling_factor)
