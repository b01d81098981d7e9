import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void reduce_middle(const float* x, int64_t* out, int dim1, int dim2) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= dim2) return;
    const float* in = x + (int64_t)blockIdx.y * dim1 * dim2 + col;
    float top = -INFINITY;
    int64_t best = 0;
    for (int i = 0; i < dim1; ++i) {
        float v = in[(int64_t)i * dim2];
        if (isnan(top)) break;
        if (v > top || isnan(v)) {
            top = v;
            best = i + 1;
        }
    }
    out[blockIdx.y * dim2 + col] = best;
}

torch::Tensor argmax_dim1(torch::Tensor x) {
    auto out = torch::empty({x.size(0), x.size(2)}, x.options().dtype(torch::kLong));
    dim3 grid((x.size(2) + 127) / 128, x.size(0));
    reduce_middle<<<grid, 128>>>(x.data_ptr<float>(), out.data_ptr<int64_t>(), x.size(1), x.size(2));
    return out;
}
"""

cpp_source = """
torch::Tensor argmax_dim1(torch::Tensor x);
"""

ext = load_inline(
    name="argmax_off",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['argmax_dim1'],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return ext.argmax_dim1(x)
