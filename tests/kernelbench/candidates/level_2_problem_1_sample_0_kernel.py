import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

conv_relu_bias_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_bias(float* data, const float* bias, int64_t n, int inner, int channels) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        float v = data[i];
        data[i] = (v < 0.0f ? 0.0f : v) + bias[i / inner % channels];
    }
}

void relu_bias_(torch::Tensor data, torch::Tensor bias) {
    int64_t n = data.numel();
    int channels = data.size(1);
    int inner = data.size(2) * data.size(3);
    int blocks = std::min<int64_t>((n + 255) / 256, 4096);
    relu_bias<<<blocks, 256>>>(data.data_ptr<float>(), bias.data_ptr<float>(), n, inner, channels);
}
"""

conv_relu_bias = load_inline(
    name="conv_relu_bias",
    cpp_sources="void relu_bias_(torch::Tensor data, torch::Tensor bias);",
    cuda_sources=conv_relu_bias_source,
    functions=["relu_bias_"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv(x).contiguous()
        conv_relu_bias.relu_bias_(x, self.bias)
        return x
