"""Programs that know nothing of Kernel LSP, for tests of what is recorded on the device."""

import subprocess
from pathlib import Path

import pytest

from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.device.nvml import Gpu

CUDA = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>
#ifndef FACTOR
#define FACTOR 2.0f
#endif
struct View { const float* data; float* out; int n; float scale; };
__constant__ float bias[4];
__device__ int calls;

__global__ void scale_view(View v) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < v.n) v.out[i] = v.scale * v.data[i] * (FACTOR / 2);
}
__global__ void batched(float** rows, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) rows[blockIdx.y][i] = rows[blockIdx.y][i] * FACTOR + blockIdx.y;
    if (i == 0 && blockIdx.y == 0) calls++;
}
__global__ void biased(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * FACTOR + bias[i & 3];
}
template <typename T, int B> __global__ void reduce(const T* x, T* y, int n) {
    extern __shared__ float partial[];
    float sum = 0;
    for (int i = blockIdx.x * B + threadIdx.x; i < n; i += gridDim.x * B) sum += x[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = B / 2; half; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = partial[0] * FACTOR;
}
__global__ void racing_sum(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(y, x[i]);
}

int main(int argc, char** argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20, n = 1 << 22, width = 4096;
    float *x, *y, *z, *rows[8], **table;
    cudaMalloc(&x, n * 4);
    cudaMalloc(&y, n * 4);
    cudaMalloc(&z, 4096);
    cudaMalloc(&table, sizeof rows);
    std::vector<float> host(n);
    for (int i = 0; i < n; i++) host[i] = (i % 1009) * 0.001f + 1e-4f * (i % 7);
    cudaMemcpy(x, host.data(), n * 4, cudaMemcpyHostToDevice);
    for (auto& row : rows) {
        cudaMalloc(&row, width * 4);
        cudaMemcpy(row, host.data(), width * 4, cudaMemcpyHostToDevice);
    }
    cudaMemcpy(table, rows, sizeof rows, cudaMemcpyHostToDevice);
    float values[4] = {1, 2, 3, 4};
    cudaMemcpyToSymbol(bias, values, sizeof values);
    cudaEvent_t from, to;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    View view{x, y, n, 3.0f};
    for (int round = -2; round < rounds; round++) {
        if (round == 0) cudaEventRecord(from);
        scale_view<<<(n + 255) / 256, 256>>>(view);
        batched<<<dim3(16, 8), 256>>>(table, width);
        biased<<<(n + 255) / 256, 256>>>(x, y, n);
        reduce<float, 256><<<1024, 256, 1024>>>(y, z, n);
    }
    cudaEventRecord(to);
    cudaError_t failed = cudaDeviceSynchronize();
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, from, to);
    std::vector<float> sums(1024);
    cudaMemcpy(sums.data(), z, 4096, cudaMemcpyDeviceToHost);
    cudaMemcpy(host.data(), rows[3], width * 4, cudaMemcpyDeviceToHost);
    uint64_t hash = 14695981039346656037ull;
    auto mix = [&](const void* data, size_t size) {
        for (size_t i = 0; i < size; i++) hash = (hash ^ ((const uint8_t*)data)[i]) * 1099511628211ull;
    };
    mix(sums.data(), 4096);
    mix(host.data(), width * 4);
    printf("%s %016llx\n", cudaGetErrorString(failed), (unsigned long long)hash);
    fprintf(stderr, "%.3f us\n", 1000 * milliseconds);
    racing_sum<<<(n + 255) / 256, 256>>>(x, z, n);
    failed = cudaDeviceSynchronize();
    if (argc > 2 && !strcmp(argv[2], "killed")) {
        sleep(4);
        abort();
    }
    return failed ? 1 : 7;
}
"""
ROUNDS = 20
"""Number of rounds that the program times; there are two before them."""

TORCH = """import torch

torch.manual_seed(0)
x = torch.randn(512, 1000, device="cuda")
indices = torch.randperm(512).cuda()
for _ in range(3):
    y = torch.nn.functional.layer_norm(torch.softmax(x, dim=-1), (1000,))
    z = torch.zeros_like(x).index_add_(0, indices, y)
torch.cuda.synchronize()
"""

GRAPH = """import torch

x = torch.randn(1 << 20, device="cuda")
for _ in range(3):
    torch.sin(x)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(4):
        x = torch.sin(x)
for _ in range(10):
    graph.replay()
torch.cuda.synchronize()
"""

OPS = """import torch
import triton
import triton.language as tl


@triton.jit
def scale_rows_kernel(x, w, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < cols
    values = tl.load(x + row * cols + places, mask=inside, other=0.0)
    norm = 1 / tl.sqrt(tl.sum(values * values) / cols + 1e-6)
    tl.store(out + row * cols + places, values * norm * tl.load(w + places, mask=inside, other=0.0), mask=inside)


def scale_rows(x, w):
    out = torch.empty_like(x)
    scale_rows_kernel[(x.shape[0],)](x, w, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


class ScaleRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return scale_rows(x, w)

    @staticmethod
    def backward(ctx, dy):
        (w,) = ctx.saved_tensors
        return scale_rows(dy.contiguous(), w), None
"""
STEP = """import hashlib
import torch
from ops import ScaleRows

torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
layers = [torch.nn.Linear(768, 768, device="cuda") for _ in range(3)]
optimizer = torch.optim.AdamW([p for layer in layers for p in layer.parameters()], lr=1e-3)
w = torch.rand(768, device="cuda")
x = torch.randn(256, 768, device="cuda")
for _ in range(20):
    y = x
    for layer in layers:
        y = torch.nn.functional.gelu(ScaleRows.apply(layer(y), w))
    y.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
digest = hashlib.sha256()
for layer in layers:
    digest.update(layer.weight.detach().cpu().numpy().tobytes())
print(digest.hexdigest())
"""


def compiled(folder: Path, gpu: Gpu, name: str = "program", *options: str) -> Path:
    """Compile the CUDA program, or its cubin with `-cubin`; skip the test without nvcc."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        pytest.skip("there is no nvcc")
    source = folder / "program.cu"
    source.write_text(CUDA)
    command = [str(nvcc), "-O2", f"-arch={gpu.arch}", *options, str(source), "-o", str(folder / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return folder / name
