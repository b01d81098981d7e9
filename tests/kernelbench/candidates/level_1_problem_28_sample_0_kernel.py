import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_CUDA = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float hard_sigmoid_op(float v) {
    return isnan(v) ? v : fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) / 6.0f;
}

__global__ void hard_sigmoid_grid_stride(const float* __restrict__ in, float* __restrict__ out, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += stride) {
        out[i] = hard_sigmoid_op(in[i]);
    }
}

}  // namespace

at::Tensor hard_sigmoid(const at::Tensor& x) {
    at::Tensor y = at::empty(x.sizes(), x.options());
    const long long n = x.numel();
    if (n == 0) return y;
    const int blocks = (int)std::min<long long>((n + kThreads - 1) / kThreads, 65535);
    hard_sigmoid_grid_stride<<<blocks, kThreads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""


class ModelNew(nn.Module):
    """Compiles its kernel when it is made."""

    def __init__(self):
        super().__init__()
        self.ext = load_inline(
            name="hard_sigmoid_grid",
            cpp_sources="at::Tensor hard_sigmoid(const at::Tensor& x);",
            cuda_sources=_CUDA,
            functions="hard_sigmoid",
            with_cuda=True,
            verbose=False,
        )

    def forward(self, x):
        return self.ext.hard_sigmoid(x)
