import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_hardswish_kernel(const float* in, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = in[i];
    v = v < 0.0f ? 0.0f : v;
    float gate = (v + 3.0f) / 6.0f;
    gate = gate > 1.0f ? 1.0f : gate;
    v *= gate;
    out[i] = v;
}

torch::Tensor relu_hardswish_cuda(torch::Tensor in) {
    auto out = torch::empty_like(in);
    int64_t n = in.numel();
    int threads = 256;
    relu_hardswish_kernel<<<(n + threads - 1) / threads, threads>>>(in.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""

relu_hardswish = load_inline(
    name="relu_hardswish",
    cpp_sources="torch::Tensor relu_hardswish_cuda(torch::Tensor in);",
    cuda_sources=source,
    functions=["relu_hardswish_cuda"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        x = self.conv(x)
        return relu_hardswish.relu_hardswish_cuda(x)
