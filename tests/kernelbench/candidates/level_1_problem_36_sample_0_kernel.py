import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

rms_cuda = """
#include <torch/extension.h>

__global__ void rms_norm(const float* x, float* y, int channels, int inner, float eps) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= inner) return;
    const float* in = x + (long)blockIdx.y * channels * inner + p;
    float* out = y + (long)blockIdx.y * channels * inner + p;
    float squares = 0.0f;
    for (int c = 0; c < channels; ++c) {
        float v = in[(long)c * inner];
        squares += v * v;
    }
    float rms = sqrtf(squares / channels + eps);
    for (int c = 0; c < channels; ++c) out[(long)c * inner] = in[(long)c * inner] / rms;
}

torch::Tensor rms_norm_cuda(torch::Tensor x, double eps) {
    auto y = torch::empty_like(x);
    int batch = x.size(0), channels = x.size(1);
    int inner = x.numel() / (batch * channels);
    dim3 grid((inner + 255) / 256, batch);
    rms_norm<<<grid, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), channels, inner, (float)eps);
    return y;
}
"""

rms = load_inline(
    name="rms_norm",
    cpp_sources="torch::Tensor rms_norm_cuda(torch::Tensor x, double eps);",
    cuda_sources=rms_cuda,
    functions=["rms_norm_cuda"],
    extra_cuda_cflags=["-O3", "-lineinfo"],
)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms.rms_norm_cuda(x, self.eps)
