"""A small CUDA kernel and its workload, for tests of what is done with them."""

KERNEL = """__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i];
}
"""
WORKLOAD = """import torch
CASES = [dict(n=100)]
def inputs(n):
    return (torch.randn(n, device="cuda"),)
def reference(x):
    return 0.5 * x
def launch(module, x):
    y = torch.empty_like(x)
    module.scale[(1,), (128,)](x, y, x.numel())
    return y
"""
