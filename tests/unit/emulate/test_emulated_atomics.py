"""Lanes that update one cell take their turns in lane order."""

import numpy as np
import pytest
from emulator_kit import compiled, launch
from hypothesis import given
from hypothesis import strategies as st

from kernel_lsp.emulate import atomics
from kernel_lsp.emulate.atomic import apply

OPCODES = [
    "add.u32",
    "add.s32",
    "max.s32",
    "min.u32",
    "exch.b32",
    "inc.u32",
    "dec.u32",
    "xor.b32",
    "cas.b32",
    "add.f32",
]


@given(
    st.sampled_from(OPCODES),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60),
)
def test_turns(opcode, updates):
    operation = atomics.bind(f"atom.shared.{opcode}")
    assert operation is not None
    where = np.array([cell for cell, _, _ in updates])
    operands = [np.array([update[n + 1] for update in updates], np.uint32) for n in range(operation.operands)]
    if opcode == "add.f32":
        operands = [operand.astype(np.float32).view(np.uint32) for operand in operands]
    expected, cells = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    seen = []
    for number, cell in enumerate(where):
        seen.append(expected[cell])
        old = expected[cell : cell + 1].copy()
        expected[cell] = operation.update(old, *(operand[number : number + 1] for operand in operands))[0]
    name, kind = opcode.split(".")
    found = apply(operation, name, kind[0] in "us", cells, where, operands)
    assert cells.tolist() == expected.tolist()
    assert found.tolist() == seen


SOURCE = r"""
#include <cuda_fp16.h>
extern "C" {
__global__ void order(int* next, int* got, float* sum, double* wide, unsigned long long* most, half2* halves) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    got[i] = atomicAdd(next, 1);
    atomicAdd(sum, 0.5f);
    atomicAdd(wide, 0.25);
    atomicMax(most, (unsigned long long)i << 33);
    atomicAdd(halves, __floats2half2_rn(1.0f, 2.0f));
}
__global__ void mixed(int* y) {
    __shared__ int s[2];
    if (threadIdx.x < 2) s[threadIdx.x] = 0;
    __syncthreads();
    int* p = threadIdx.x & 1 ? &s[threadIdx.x >> 5] : y + 2;
    atomicAdd(p, 1);
    __syncthreads();
    if (threadIdx.x < 2) y[threadIdx.x] = s[threadIdx.x];
}
}
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    return compiled(SOURCE)


def test_atomics_of_all_widths(ptx):
    done = launch(
        ptx,
        "order",
        3,
        64,
        np.zeros(1, np.int32),
        np.zeros(192, np.int32),
        np.zeros(1, np.float32),
        np.zeros(1),
        np.zeros(1, np.uint64),
        np.zeros(2, np.float16),
    )
    counter, got, total, wide, most, halves = done.arrays
    assert counter[0] == 192
    assert sorted(got) == list(range(192))
    assert (total[0], wide[0], most[0], halves.tolist()) == (96, 48, 191 << 33, [192, 384])
    assert done.findings == ()


def test_atomics_through_pointers_into_different_spaces(ptx):
    done = launch(ptx, "mixed", 1, 64, np.zeros(3, np.int32))
    assert done.arrays[0].tolist() == [16, 16, 32]
    assert done.findings == ()
