import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

layer_norm_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void layer_norm_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                                  const float* __restrict__ beta, float* __restrict__ y, int n, float eps) {
    __shared__ double sums[256];
    const float* in = x + (size_t)blockIdx.x * n;
    float* out = y + (size_t)blockIdx.x * n;
    double sum = 0.0;
    for (int i = threadIdx.x; i < n; i += 256) sum += in[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    const float mean = sums[0] / n;
    __syncthreads();
    double squares = 0.0;
    for (int i = threadIdx.x; i < n; i += 256) {
        float d = in[i] - mean;
        squares += d * d;
    }
    sums[threadIdx.x] = squares;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    const float scale = 1.0 / sqrt(sums[0] / n + eps);
    for (int i = threadIdx.x; i < n; i += 256) out[i] = (in[i] - mean) * scale * gamma[i] + beta[i];
}

torch::Tensor layer_norm_cuda(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps) {
    auto y = torch::empty_like(x);
    const int n = gamma.numel();
    const int rows = x.numel() / n;
    layer_norm_kernel<<<rows, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(), y.data_ptr<float>(), n, (float)eps);
    return y;
}
"""

layer_norm_module = load_inline(
    name="layer_norm_module",
    cpp_sources="torch::Tensor layer_norm_cuda(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps);",
    cuda_sources=layer_norm_source,
    functions=["layer_norm_cuda"],
    verbose=True,
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x):
        return layer_norm_module.layer_norm_cuda(x.contiguous(), self.ln.weight, self.ln.bias, self.ln.eps)
