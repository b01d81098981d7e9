"""Which kernels go where the memory that they load sends them."""

import pytest
from emulator_kit import compiled

from kernel_lsp.emulate.decode import DecodedProgram
from kernel_lsp.emulate.machine import BINDERS
from kernel_lsp.emulate.ptx import load
from kernel_lsp.emulate.sampling import steered_by_data

SIGNATURE = 'extern "C" __global__ void k(const float* x, const int* where, float* y, int n)'
FREE = [
    "y[threadIdx.x] = x[threadIdx.x] * 2 + n;",
    "if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] > 0 ? x[threadIdx.x] : 0.0f;",
    "float s = x[threadIdx.x]; for (int k = 16; k; k /= 2) s += __shfl_xor_sync(~0u, s, k); y[threadIdx.x] = s;",
    "__shared__ float t[32]; t[threadIdx.x] = x[threadIdx.x]; __syncthreads(); y[threadIdx.x] = t[31 - threadIdx.x];",
    "__shared__ int t[32]; t[threadIdx.x] = 31 - threadIdx.x; __syncthreads(); y[t[threadIdx.x]] = x[threadIdx.x];",
    "atomicAdd(y, x[threadIdx.x]);",
]
STEERED = [
    "y[where[threadIdx.x]] = 1;",
    "if (x[threadIdx.x] > 0) atomicAdd(y, 1.0f);",
    "for (int i = 0; i < where[0]; ++i) y[i] = x[i] * y[i];",
    "__shared__ int t[32]; t[threadIdx.x] = where[threadIdx.x]; __syncthreads(); y[t[31 - threadIdx.x]] = 1;",
    "y[threadIdx.x] = __shfl_sync(~0u, threadIdx.x, where[threadIdx.x]);",
    "y[threadIdx.x] = __ballot_sync(where[0], threadIdx.x > n);",
    "int w[4] = {where[0], where[1], where[2], where[3]}; y[w[n & 3]] = x[n & 3];",
    "int i = atomicAdd((int*)where, 1); y[i] = 1;",
    "while (((volatile int*)where)[0] == 0) ; y[0] = 1;",
]


def steered(text):
    program = load(compiled(f"{SIGNATURE} {{ {text} }}"))
    return steered_by_data(DecodedProgram(program).function("k", BINDERS))


@pytest.mark.parametrize("text", FREE)
def test_values_that_only_pass_through(text):
    assert not steered(text)


@pytest.mark.parametrize("text", STEERED)
def test_values_that_decide(text):
    assert steered(text)
