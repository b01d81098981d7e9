"""Matrix products as real compilers emit them, run on the emulator: fragments must be those they expect."""

import struct

import numpy as np
import pytest
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc
from kernel_lsp.emulate import machine, ptx
from kernel_lsp.emulate.findings import Finding
from kernel_lsp.emulate.memory import GlobalMemory

M, N, K = 64, 32, 96


def launch(
    text: str, kernel: str, grid: tuple[int, int, int], threads: int, shared: int, arguments: list[NDArray | int]
) -> tuple[list[NDArray | int], tuple[Finding, ...]]:
    """The arrays after the launch, and what was found; parameters beyond the arguments are null."""
    program, memory = ptx.load(text), GlobalMemory()
    function = program.functions[kernel]
    block = bytearray(function.parameter_bytes)
    buffers = []
    for argument, offset in zip(arguments, function.parameter_offsets.values(), strict=False):
        if isinstance(argument, int):
            struct.pack_into("<i", block, offset, argument)
        else:
            buffers.append(memory.allocate(f"at {offset}", argument))
            struct.pack_into("<Q", block, offset, buffers[-1].address)
    result = machine.run(program, kernel, grid, (threads, 1, 1), shared, bytes(block), memory)
    arrays = [x for x in arguments if not isinstance(x, int)]
    return [b.data.view(x.dtype).reshape(x.shape) for b, x in zip(buffers, arrays, strict=True)], result.findings


def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # noqa: N803
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), c.dtype.element_ty)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * k + inner[None, :])
        right = tl.load(b + inner[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total, out_dtype=c.dtype.element_ty)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


def whole_numbers(seed: int, shape: tuple[int, int], kind: str) -> tuple[NDArray, NDArray]:
    """Whole numbers, and their elements as the kernel sees them."""
    x = np.random.default_rng(seed).integers(-3, 4, shape)
    match kind:
        case "bf16":
            return x, (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        case "fp8e5":
            return x, (x.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)
        case _:
            return x, x.astype({"fp16": np.float16, "fp32": np.float32, "i8": np.int8}[kind])


@pytest.mark.parametrize(
    ("kind", "arch", "instruction"),
    [
        ("fp16", 80, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("bf16", 80, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("fp32", 80, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("i8", 80, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"),
        ("fp8e5", 89, "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32"),
    ],
)
def test_triton_products(kind: str, arch: int, instruction: str) -> None:
    wide = "i32" if kind == "i8" else "fp32"
    types = {"a": f"*{kind}", "b": f"*{kind}", "c": f"*{wide}", "m": "i32", "n": "i32", "k": "i32"}
    constants = {"BM": 32, "BN": 32, "BK": 32}
    source = ASTSource(triton.jit(matmul), types | dict.fromkeys(constants, "constexpr"), constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32))
    assert instruction in compiled.asm["ptx"]
    (a, a_raw), (b, b_raw) = whole_numbers(1, (M, K), kind), whole_numbers(2, (K, N), kind)
    c = np.zeros((M, N), np.int32 if kind == "i8" else np.float32)
    (_, _, got), findings = launch(
        compiled.asm["ptx"],
        compiled.metadata.name,
        (M // 32, N // 32, 1),
        32 * compiled.metadata.num_warps,
        compiled.metadata.shared,
        [a_raw, b_raw, c, M, N, K],
    )
    np.testing.assert_array_equal(got, a @ b)
    assert findings == ()


WMMA = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void gemm(const half* a, const half* b, half* c, int n, int k) {
  __shared__ half left[16 * 24], right[16 * 24];
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> total;
  wmma::fill_fragment(total, 0.0f);
  for (int start = 0; start < k; start += 16) {
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 32) {
      left[i / 16 * 24 + i % 16] = a[(blockIdx.x * 16 + i / 16) * k + start + i % 16];
      right[i % 16 * 24 + i / 16] = b[(start + i / 16) * n + blockIdx.y * 16 + i % 16];
    }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
    wmma::load_matrix_sync(x, left, 24);
    wmma::load_matrix_sync(y, right, 24);
    for (int i = 0; i < x.num_elements; i++) x.x[i] = x.x[i] * __float2half(2.0f);
    wmma::mma_sync(total, x, y, total);
  }
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> narrow;
  for (int i = 0; i < total.num_elements; i++) narrow.x[i] = __float2half(total.x[i] + 1.0f);
  wmma::store_matrix_sync(c + blockIdx.x * 16 * n + blockIdx.y * 16, narrow, n, wmma::mem_row_major);
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_wmma_through_shared_memory_with_work_on_its_fragments(arch: str) -> None:
    binary = compile_nvrtc(WMMA, "gemm.cu", arch).binary
    assert binary is not None
    assert binary.ptx is not None
    (a, a_raw), (b, b_raw) = whole_numbers(3, (M, K), "fp16"), whole_numbers(4, (K, N), "fp16")
    arguments: list[NDArray | int] = [a_raw, b_raw, np.zeros((M, N), np.float16), N, K]
    (_, _, got), findings = launch(binary.ptx, "gemm", (M // 16, N // 16, 1), 32, 0, arguments)
    np.testing.assert_array_equal(got, 2 * a @ b + 1)
    assert findings == ()
