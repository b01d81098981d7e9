import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void column_sums(const float* w, double* sums, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    double sum = 0.0;
    for (int r = 0; r < rows; ++r) sum += w[(int64_t)r * cols + c];
    sums[c] = sum;
}

__global__ void dot_rows(const float* x, const double* sums, float* out, int cols, double scale) {
    __shared__ double shared[256];
    double sum = 0.0;
    for (int c = threadIdx.x; c < cols; c += 256) sum += x[(int64_t)blockIdx.x * cols + c] * sums[c];
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = static_cast<float>(shared[0] * scale);
}

torch::Tensor gemm_sum(torch::Tensor x, torch::Tensor w, double scale) {
    int rows = w.size(0), cols = w.size(1);
    auto sums = torch::empty({cols}, w.options().dtype(torch::kFloat64));
    auto out = torch::empty({x.size(0), 1}, x.options());
    column_sums<<<(cols + 255) / 256, 256>>>(w.data_ptr<float>(), sums.data_ptr<double>(), rows, cols);
    dot_rows<<<x.size(0), 256>>>(x.data_ptr<float>(), sums.data_ptr<double>(), out.data_ptr<float>(), cols, scale);
    return out;
}
"""

cpp_source = """
torch::Tensor gemm_sum(torch::Tensor x, torch::Tensor w, double scale);
"""

ext = load_inline(
    name="gemm_sum",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['gemm_sum'],
    verbose=False,
)


class ModelNew(nn.Module):
    """The sum over the outputs is taken before the product: it is one of a matrix and a vector then."""

    def __init__(self, input_size, hidden_size, scaling_factor):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size, input_size))
        self.scaling_factor = scaling_factor

    def forward(self, x):
        return ext.gemm_sum(x, self.weight, self.scaling_factor / 2)
