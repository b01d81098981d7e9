import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void swish_scale_kernel(const float* in, float* out, int64_t n, float scale) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = in[i];
    v = v / (1.0f + expf(-v)) * scale;
    out[i] = v;
}

torch::Tensor swish_scale_cuda(torch::Tensor in, double scale) {
    auto out = torch::empty_like(in);
    int64_t n = in.numel();
    int threads = 256;
    swish_scale_kernel<<<(n + threads - 1) / threads, threads>>>(in.data_ptr<float>(), out.data_ptr<float>(), n, (float)scale);
    return out;
}
"""

swish_scale = load_inline(
    name="swish_scale",
    cpp_sources="torch::Tensor swish_scale_cuda(torch::Tensor in, double scale);",
    cuda_sources=source,
    functions=["swish_scale_cuda"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.matmul(x)
        return swish_scale.swish_scale_cuda(x, self.scaling_factor)
