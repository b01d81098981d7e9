import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_CUDA = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float hardtanh_op(float v) {
    return v;
}

__global__ void hardtanh_grid_stride(const float* __restrict__ in, float* __restrict__ out, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += stride) {
        out[i] = hardtanh_op(in[i]);
    }
}

}  // namespace

at::Tensor hardtanh(const at::Tensor& x) {
    at::Tensor y = at::empty(x.sizes(), x.options());
    const long long n = x.numel();
    if (n == 0) return y;
    const int blocks = (int)std::min<long long>((n + kThreads - 1) / kThreads, 65535);
    hardtanh_grid_stride<<<blocks, kThreads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""


class ModelNew(nn.Module):
    """Compiles its kernel when it is made."""

    def __init__(self):
        super().__init__()
        self.ext = load_inline(
            name="hardtanh_grid",
            cpp_sources="at::Tensor hardtanh(const at::Tensor& x);",
            cuda_sources=_CUDA,
            functions="hardtanh",
            with_cuda=True,
            verbose=False,
        )

    def forward(self, x):
        return self.ext.hardtanh(x)
