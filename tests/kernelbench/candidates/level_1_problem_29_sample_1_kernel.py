import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_CUDA = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float softplus_op(float v) {
    return logf(1.0f + expf(v));
}

__global__ void softplus_grid_stride(const float* __restrict__ in, float* __restrict__ out, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += stride) {
        out[i] = softplus_op(in[i]);
    }
}

}  // namespace

at::Tensor softplus(const at::Tensor& x) {
    at::Tensor y = at::empty(x.sizes(), x.options());
    const long long n = x.numel();
    if (n == 0) return y;
    const int blocks = (int)std::min<long long>((n + kThreads - 1) / kThreads, 65535);
    softplus_grid_stride<<<blocks, kThreads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""


class ModelNew(nn.Module):
    """Compiles its kernel when it is made."""

    def __init__(self):
        super().__init__()
        self.ext = load_inline(
            name="softplus_grid",
            cpp_sources="at::Tensor softplus(const at::Tensor& x);",
            cuda_sources=_CUDA,
            functions="softplus",
            with_cuda=True,
            verbose=False,
        )

    def forward(self, x):
        return self.ext.softplus(x)
