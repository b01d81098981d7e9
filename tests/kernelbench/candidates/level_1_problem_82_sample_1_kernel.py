import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void depthwise(const float* x, const float* w, float* y, int channels, int h, int width, int k,
                          int stride, int padding, int oh, int ow, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int ox = i % ow, oy = i / ow % oh, c = i / (ow * oh) % channels, b = i / (ow * oh * channels);
    float sum = 0.0f;
    for (int dy = 0; dy < k; ++dy) {
        for (int dx = 0; dx < k; ++dx) {
            int yy = oy * stride - padding + dy, xx = ox * stride - padding + dx;
            if (yy < 0 || yy >= h || xx < 0 || xx >= width) continue;
            sum += x[((b * channels + c) * h + yy) * width + xx] * w[(c * k + dx) * k + dy];
        }
    }
    y[i] = sum;
}

torch::Tensor depthwise_cuda(torch::Tensor x, torch::Tensor w, int64_t stride, int64_t padding) {
    int batch = x.size(0), channels = x.size(1), h = x.size(2), width = x.size(3), k = w.size(2);
    int oh = (h + 2 * padding - k) / stride + 1, ow = (width + 2 * padding - k) / stride + 1;
    auto y = torch::empty({batch, channels, oh, ow}, x.options());
    int total = y.numel();
    depthwise<<<(total + 255) / 256, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), channels, h,
                                            width, k, stride, padding, oh, ow, total);
    return y;
}
"""

cpp_source = """
torch::Tensor depthwise_cuda(torch::Tensor x, torch::Tensor w, int64_t stride, int64_t padding);
"""

ext = load_inline(
    name="depthwise_swapped",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['depthwise_cuda'],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, kernel_size: int, stride: int = 1, padding: int = 0, bias: bool = False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )
        self.stride, self.padding = stride, padding

    def forward(self, x):
        return ext.depthwise_cuda(x, self.conv2d.weight, self.stride, self.padding)
