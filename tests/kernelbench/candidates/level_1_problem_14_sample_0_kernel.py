import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

#define BS 16

__global__ void triu_matmul_kernel(const float* A, const float* B, float* C, int n) {
    int col = blockIdx.x * BS + threadIdx.x;
    int row = blockIdx.y * BS + threadIdx.y;
    if (row >= n || col >= n) return;
    float sum = 0.0f;
    if (row <= col) {
        for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + col];
    }
    C[row * n + col] = sum;
}

torch::Tensor triu_matmul(torch::Tensor A, torch::Tensor B) {
    int n = A.size(0);
    auto C = torch::empty_like(A);
    dim3 grid((n + BS - 1) / BS, (n + BS - 1) / BS);
    triu_matmul_kernel<<<grid, dim3(BS, BS)>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), n);
    return C;
}
"""

cpp_source = """
torch::Tensor triu_matmul(torch::Tensor A, torch::Tensor B);
"""

ext = load_inline(
    name="triu",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['triu_matmul'],
    verbose=False,
)


class ModelNew(nn.Module):
    def forward(self, A, B):
        return ext.triu_matmul(A, B)
