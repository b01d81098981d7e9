import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void scale_kernel(const float* a, float s, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * s;
}

torch::Tensor scale(torch::Tensor a, double s) {
    auto out = torch::empty_like(a);
    int64_t n = a.numel();
    scale_kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), (float)s, out.data_ptr<float>(), n);
    return out;
}
"""

cpp_source = """
torch::Tensor scale(torch::Tensor a, double s);
"""

ext = load_inline(
    name="scale",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['scale'],
    verbose=False,
)


class ModelNew(nn.Module):
    def forward(self, A, s):
        return ext.scale(A, s)
