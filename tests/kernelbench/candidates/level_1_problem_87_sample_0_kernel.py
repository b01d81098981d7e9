import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void pointwise(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y,
                          int in_channels, int out_channels, int inner) {
    const int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= inner) return;
    const float* in = x + (size_t)blockIdx.z * in_channels * inner + p;
    float sum = 0.f;
    for (int c = 0; c < in_channels; ++c) sum += in[(size_t)c * inner] * w[blockIdx.y * in_channels + c];
    y[((size_t)blockIdx.z * out_channels + blockIdx.y) * inner + p] = sum;
}

torch::Tensor conv1x1(torch::Tensor x, torch::Tensor w) {
    const int batch = x.size(0), in_channels = x.size(1), h = x.size(2), width = x.size(3);
    const int out_channels = w.size(0);
    auto y = torch::empty({batch, out_channels, h, width}, x.options());
    dim3 grid((h * width + 255) / 256, out_channels, batch);
    pointwise<<<grid, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), in_channels, out_channels, h * width);
    return y;
}
"""

cpp_source = """
torch::Tensor conv1x1(torch::Tensor x, torch::Tensor w);
"""

ext = load_inline(
    name="pointwise",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['conv1x1'],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, bias: bool = False):
        super().__init__()
        self.conv1d = nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=1, padding=0, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ext.conv1x1(x, self.conv1d.weight)
