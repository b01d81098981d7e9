import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

#define WIDTH 256

// A block goes along one row in pieces of WIDTH and carries the sum over.
__global__ void masked_cumsum_rows(const float* x, const bool* mask, float* y, int dim) {
    __shared__ float piece[WIDTH];
    const float* in = x + (int64_t)blockIdx.x * dim;
    float* out = y + (int64_t)blockIdx.x * dim;
    const bool* keep = mask + (int64_t)blockIdx.x * dim;
    float carry = 0.0f;
    for (int start = 0; start < dim; start += WIDTH) {
        int i = start + threadIdx.x;
        piece[threadIdx.x] = i < dim && keep[i] ? in[i] : 0.0f;
        __syncthreads();
        for (int offset = 1; offset < WIDTH; offset *= 2) {
            float left = threadIdx.x >= offset ? piece[threadIdx.x - offset] : 0.0f;
            __syncthreads();
            piece[threadIdx.x] += left;
            __syncthreads();
        }
        if (i < dim) out[i] = carry + piece[threadIdx.x];
        carry += piece[WIDTH - 1];
        __syncthreads();
    }
}

torch::Tensor masked_cumsum_cuda(torch::Tensor x, torch::Tensor mask) {
    auto y = torch::empty_like(x);
    int rows = x.size(0), dim = x.size(1);
    masked_cumsum_rows<<<rows, WIDTH>>>(x.data_ptr<float>(), mask.data_ptr<bool>(), y.data_ptr<float>(), dim);
    return y;
}
"""

cpp_source = """
torch::Tensor masked_cumsum_cuda(torch::Tensor x, torch::Tensor mask);
"""

ext = load_inline(
    name="masked_cumsum",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['masked_cumsum_cuda'],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super(ModelNew, self).__init__()
        self.dim = dim

    def forward(self, x, mask):
        assert self.dim == 1
        return ext.masked_cumsum_cuda(x.contiguous(), mask.contiguous())
