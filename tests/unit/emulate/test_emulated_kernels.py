"""Kernels as NVRTC compiles them give on the emulator what numpy gives."""

import struct

import numpy as np
import pytest
from emulator_kit import compiled, launch

from kernel_lsp.emulate.errors import EmulatorFault, LaunchError, NeedsGpu
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.machine import Options, run
from kernel_lsp.emulate.memory import GlobalMemory
from kernel_lsp.emulate.ptx import load

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
namespace cg = cooperative_groups;
extern "C" {
__global__ void gelu(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    auto f = [](float u) { return 0.5f * u * (1.0f + erff(u * 0.70710678f)); };
    y[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
}
__global__ void softmax(const float* x, float* y, int n) {
    __shared__ float part[32];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    x += (size_t)blockIdx.x * n, y += (size_t)blockIdx.x * n;
    float m = -INFINITY;
    for (int i = t; i < n; i += blockDim.x) m = fmaxf(m, x[i]);
    for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
    if (lane == 0) part[warp] = m;
    __syncthreads();
    m = lane < blockDim.x / 32 ? part[lane] : -INFINITY;
    for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
    __syncthreads();
    float s = 0;
    for (int i = t; i < n; i += blockDim.x) s += expf(x[i] - m);
    for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
    if (lane == 0) part[warp] = s;
    __syncthreads();
    s = lane < blockDim.x / 32 ? part[lane] : 0;
    for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
    for (int i = t; i < n; i += blockDim.x) y[i] = expf(x[i] - m) / s;
}
__global__ void sgemm(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[16][17], bs[16][17];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0;
    for (int at = 0; at < k; at += 16) {
        as[y][x] = row < m && at + x < k ? a[row * k + at + x] : 0;
        bs[y][x] = at + y < k && col < n ? b[(at + y) * n + col] : 0;
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += as[y][i] * bs[i][x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
__global__ void histogram(const int* x, int* counts, int n) {
    __shared__ int bins[64];
    for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(&counts[i], bins[i]);
}
__global__ void votes(const int* x, unsigned* y) {
    int t = threadIdx.x;
    unsigned odd = __ballot_sync(~0u, x[t] & 1), same = __match_any_sync(~0u, x[t] % 5);
    y[t] = odd ^ same ^ (__all_sync(~0u, x[t] >= 0) << 4) ^ __reduce_add_sync(~0u, x[t]);
}
__global__ void tiles(const float* x, float* y) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    float v = x[threadIdx.x];
    for (int d = 4; d; d >>= 1) v += tile.shfl_xor(v, d);
    y[threadIdx.x] = v;
}
__global__ void collatz(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i], steps = 0;
    while (v != 1) { v = v & 1 ? 3 * v + 1 : v / 2; ++steps; }
    y[i] = steps;
}
__global__ void choose(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i], r;
    switch (v % 10) {
        case 0: r = v * 3; break;
        case 1: r = v + 7; break;
        case 2: r = v ^ 5; break;
        case 3: r = v - 2; break;
        case 4: r = v * v; break;
        case 5: r = v / 3; break;
        case 6: r = ~v; break;
        case 7: r = v << 2; break;
        default: r = -1;
    }
    y[i] = r;
}
__device__ __noinline__ float horner(float x, int n) {
    float s = 0;
    for (int i = 0; i < n; ++i) s = s * x + i;
    return s;
}
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void calls(const float* x, float* y, int* f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = horner(x[i], i % 7) + horner(x[i] * 2, 3); f[i] = fibonacci(i % 10); }
}
typedef int (*Function)(int);
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ Function table_of_functions[2] = {twice, square};
__global__ void pointers(int* y) { y[threadIdx.x] = table_of_functions[threadIdx.x & 1](threadIdx.x); }
__global__ void locals(const int* at, float* y, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    float a[16];
    for (int k = 0; k < 16; ++k) a[k] = k * 1.5f + i;
    if (i < n) { a[at[i]] = -1; y[i] = a[(at[i] + 1) & 15] + a[at[i]]; }
}
struct Options { float a, b; int n; double d; char c[5]; };
__global__ void structure(Options o, double* y) { y[threadIdx.x] = o.a * o.n + o.b + o.d + o.c[threadIdx.x % 5]; }
__device__ int counter;
__constant__ float table[4] = {1, 2, 3, 4};
__global__ void variables(float* y) { int k = atomicAdd(&counter, 1); y[k] = table[k & 3]; }
__global__ void dynamic(const float* x, float* y) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void generic(float* y, int in_shared) {
    __shared__ float s[32];
    float* p = in_shared ? s : y + 64;
    p[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = p[31 - threadIdx.x];
}
__global__ void double_buffer(const float4* x, float4* y, int tiles) {
    __shared__ float4 s[2][128];
    int t = threadIdx.x;
    const float4* p = x + blockIdx.x * tiles * 128;
    float4 sum = {0, 0, 0, 0};
    __pipeline_memcpy_async(&s[0][t], p + t, 16);
    __pipeline_commit();
    for (int k = 0; k < tiles; ++k) {
        if (k + 1 < tiles) __pipeline_memcpy_async(&s[(k + 1) & 1][t], p + (k + 1) * 128 + t, 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = s[k & 1][127 - t];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        __syncthreads();
    }
    y[blockIdx.x * 128 + t] = sum;
}
__global__ void copy_part(const float4* x, float4* y, int bytes) {
    __shared__ float4 s[32];
    __pipeline_memcpy_async(&s[threadIdx.x], x + threadIdx.x, 16, 16 - bytes);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void counts(const int* x, int* y) {
    int t = threadIdx.x;
    int some = __syncthreads_or(x[t] > 95), all = __syncthreads_and(x[t] >= 0), above = __syncthreads_count(x[t] > 50);
    y[t] = some * 1000000 + all * 10000 + above;
}
__global__ void product(const half* a, const half* b, float* c) {
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
__global__ void halves(const half2* a, const __nv_bfloat162* b, half2* c, float2* d) {
    int t = threadIdx.x;
    c[t] = __hfma2(a[t], a[t], __float2half2_rn(0.5f));
    d[t] = __bfloat1622float2(__hmul2(b[t], b[t]));
}
__global__ void clocked(long long* y) {
    long long start = clock64();
    __nanosleep(100);
    y[threadIdx.x] = clock64() - start;
}
__global__ void surface(cudaTextureObject_t t, float* y) { y[0] = tex1Dfetch<float>(t, 0); }
}
"""

RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def ptx() -> str:
    return compiled(SOURCE)


def test_gelu(ptx):
    from math import erf

    x = RNG.standard_normal((1001, 4)).astype(np.float32)
    done = launch(ptx, "gelu", 8, 128, x, np.zeros_like(x), 1001)
    expected = 0.5 * x * (1 + np.vectorize(erf)(x.astype(np.float64) * 0.70710678))
    np.testing.assert_allclose(done.arrays[1], expected, rtol=1e-5, atol=1e-6)
    assert done.findings == ()


def test_softmax(ptx):
    x = RNG.standard_normal((9, 777)).astype(np.float32)
    done = launch(ptx, "softmax", 9, 128, x, np.zeros_like(x), 777)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(done.arrays[1], e / e.sum(1, keepdims=True), rtol=2e-6)
    assert done.findings == ()


def test_sgemm_of_ragged_sizes(ptx):
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((50, 37), (37, 70)))
    c = np.zeros((50, 70), np.float32)
    done = launch(ptx, "sgemm", (5, 4, 1), (16, 16, 1), a, b, c, 50, 70, 37, empty=(2,))
    np.testing.assert_allclose(done.arrays[2], a @ b, rtol=1e-4, atol=1e-5)
    assert done.findings == ()


def test_histogram_with_atomics(ptx):
    x = RNG.integers(0, 64, 10_007).astype(np.int32)
    done = launch(ptx, "histogram", 13, 100, x, np.zeros(64, np.int32), len(x))
    assert (done.arrays[1] == np.bincount(x, minlength=64)).all()
    assert done.findings == ()


def test_votes_and_matches(ptx):
    x = RNG.integers(0, 100, 64).astype(np.int32)
    done = launch(ptx, "votes", 1, 64, x, np.zeros(64, np.uint32))
    for warp in x.reshape(-1, 32):
        bits = np.uint64(1) << np.arange(32, dtype=np.uint64)
        odd = int(bits[warp % 2 == 1].sum())
        expected = [odd ^ int(bits[warp % 5 == v % 5].sum()) ^ (1 << 4) ^ int(warp.sum()) for v in warp]
        at = 0 if (warp == x[:32]).all() else 32
        assert (done.arrays[1][at : at + 32] == np.array(expected, np.uint32)).all()


def test_tiles_of_a_warp(ptx):
    x = RNG.standard_normal(64).astype(np.float32)
    done = launch(ptx, "tiles", 1, 64, x, np.zeros_like(x))
    np.testing.assert_allclose(done.arrays[1], np.repeat(x.reshape(8, 8).sum(1), 8), rtol=1e-5, atol=1e-5)
    assert done.findings == ()


def test_loops_of_different_lengths(ptx):
    def steps(v: int) -> int:
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v % 2 else v // 2), count + 1
        return count

    x = RNG.integers(1, 1000, 500).astype(np.int32)
    done = launch(ptx, "collatz", 3, 192, x, np.zeros_like(x), 500)
    assert (done.arrays[1] == [steps(int(v)) for v in x]).all()


def test_switch(ptx):
    cases = {0: lambda v: v * 3, 1: lambda v: v + 7, 2: lambda v: v ^ 5, 3: lambda v: v - 2, 4: lambda v: v * v}
    cases |= {5: lambda v: v // 3, 6: lambda v: ~v, 7: lambda v: v << 2}
    x = RNG.integers(0, 1000, 300).astype(np.int32)
    done = launch(ptx, "choose", 2, 160, x, np.zeros_like(x), 300)
    assert (done.arrays[1] == [cases.get(v % 10, lambda _: -1)(int(v)) for v in x]).all()


def test_calls_and_recursion(ptx):
    def horner(x: np.float32, n: int) -> np.float32:
        s = np.float32(0)
        for i in range(n):
            s = s * x + np.float32(i)
        return s

    x = RNG.standard_normal(70).astype(np.float32)
    done = launch(ptx, "calls", 3, 32, x, np.zeros_like(x), np.zeros(70, np.int32), 70)
    expected = [horner(v, i % 7) + horner(v * 2, 3) for i, v in enumerate(x)]
    np.testing.assert_allclose(done.arrays[1], expected, rtol=1e-4, atol=1e-4)
    assert (done.arrays[2] == [[0, 1, 1, 2, 3, 5, 8, 13, 21, 34][i % 10] for i in range(70)]).all()
    assert done.findings == ()


def test_calls_through_pointers(ptx):
    done = launch(ptx, "pointers", 1, 40, np.zeros(40, np.int32))
    assert (done.arrays[0] == [i * i if i % 2 else 2 * i for i in range(40)]).all()


def test_local_arrays(ptx):
    at = RNG.integers(0, 16, 100).astype(np.int32)
    done = launch(ptx, "locals", 2, 64, at, np.zeros(100, np.float32), 100)
    assert (done.arrays[1] == [((k + 1) & 15) * 1.5 + i - 1 for i, k in enumerate(at)]).all()


def test_structures_as_parameters(ptx):
    done = launch(ptx, "structure", 1, 10, struct.pack("ffid5b", 1.5, 2.0, 3, 0.25, 1, 2, 3, 4, 5), np.zeros(10))
    assert (done.arrays[0] == [6.75 + i % 5 + 1 for i in range(10)]).all()


def test_variables_of_the_module_outlive_a_launch(ptx):
    memory = GlobalMemory()
    launch(ptx, "variables", 1, 32, np.zeros(64, np.float32), memory=memory)
    second = launch(ptx, "variables", 1, 32, np.zeros(64, np.float32), memory=memory)
    assert (second.arrays[0] == [0] * 32 + [1, 2, 3, 4] * 8).all()
    fresh = launch(ptx, "variables", 1, 32, np.zeros(64, np.float32))
    assert (fresh.arrays[0] == [1, 2, 3, 4] * 8 + [0] * 32).all()


def test_dynamic_shared_memory(ptx):
    x = RNG.standard_normal(96).astype(np.float32)
    done = launch(ptx, "dynamic", 1, 96, x, np.zeros_like(x), shared=384)
    assert (done.arrays[1] == x[::-1]).all()
    assert done.findings == ()


@pytest.mark.parametrize("in_shared", [0, 1])
def test_generic_addresses(ptx, in_shared):
    done = launch(ptx, "generic", 1, 32, np.zeros(128, np.float32), in_shared)
    assert (done.arrays[0][:32] == np.arange(32)[::-1]).all()
    assert done.findings == ()


def test_double_buffer_of_asynchronous_copies(ptx):
    x = RNG.standard_normal((3, 4, 128, 4)).astype(np.float32)
    done = launch(ptx, "double_buffer", 3, 128, x, np.zeros((3, 128, 4), np.float32), 4)
    np.testing.assert_allclose(done.arrays[1], x[:, :, ::-1].sum(1), rtol=1e-5, atol=1e-5)
    assert done.findings == ()


@pytest.mark.parametrize("bytes_read", [0, 4, 6, 16])
def test_asynchronous_copies_fill_with_zeros(ptx, bytes_read):
    x = RNG.standard_normal((32, 4)).astype(np.float32)
    done = launch(ptx, "copy_part", 1, 32, x, np.zeros_like(x), bytes_read)
    expected = x.view(np.uint8).copy()
    expected[:, bytes_read:] = 0
    assert (done.arrays[1].view(np.uint8) == expected).all()
    assert done.findings == ()


def test_barriers_that_count(ptx):
    x = RNG.integers(0, 97, 96).astype(np.int32)
    done = launch(ptx, "counts", 1, 96, x, np.zeros_like(x))
    assert (done.arrays[1] == int((x > 95).any()) * 1000000 + 10000 + int((x > 50).sum())).all()


def test_tensor_cores(ptx):
    a, b = (RNG.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    done = launch(ptx, "product", 1, 32, a, b, np.zeros((16, 16), np.float32))
    np.testing.assert_allclose(done.arrays[2], a.astype(np.float32) @ b.astype(np.float32).T, rtol=1e-3, atol=1e-3)


def test_packed_halves(ptx):
    a = RNG.standard_normal((32, 2)).astype(np.float16)
    b = (RNG.standard_normal((32, 2)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    done = launch(ptx, "halves", 1, 32, a, b, np.zeros_like(a), np.zeros((32, 2), np.float32))
    exact = a.astype(np.float64) ** 2 + 0.5
    assert (done.arrays[2] == exact.astype(np.float16)).all()
    wide = (b.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(done.arrays[3], wide * wide, rtol=2**-8)


def test_clocks_run(ptx):
    assert (launch(ptx, "clocked", 1, 32, np.zeros(32, np.int64)).arrays[0] > 0).all()


def test_some_blocks_only(ptx):
    x = RNG.standard_normal((6, 100)).astype(np.float32)
    done = launch(ptx, "softmax", 6, 64, x, np.zeros_like(x), 100, options=Options(blocks=(1, 4)))
    touched = (done.arrays[1] != 0).any(axis=1)
    assert touched.tolist() == [False, True, False, False, True, False]
    assert done.result.blocks == 2


def test_unchecked_runs_give_the_same(ptx):
    x = RNG.standard_normal((6, 100)).astype(np.float32)
    checked, unchecked = (
        launch(ptx, "softmax", 6, 64, x, np.zeros_like(x), 100, options=Options(check=check)) for check in (True, False)
    )
    assert (checked.arrays[1] == unchecked.arrays[1]).all()
    assert checked.result.instructions == unchecked.result.instructions


def test_what_was_found_before_an_instruction_that_is_not_emulated_is_reported():
    ptx = compiled("""
extern "C" __global__ void late(float* y, cudaTextureObject_t t) {
    y[threadIdx.x] = 1;
    y[0] = tex1Dfetch<float>(t, 0);
}""")
    done = launch(ptx, "late", 1, 32, np.zeros(31, np.float32), 0)
    assert [finding.kind for finding in done.findings] == [FindingKind.OUT_OF_BOUNDS]
    assert "is not emulated" in (done.result.ended or "")
    with pytest.raises(NeedsGpu):
        launch(ptx, "late", 1, 31, np.zeros(31, np.float32), 0)


def test_what_only_a_gpu_can_do_is_named(ptx):
    with pytest.raises(NeedsGpu) as raised:
        launch(ptx, "surface", 1, 1, 0, np.zeros(1, np.float32))
    assert raised.value.instruction.startswith("`tex.1d")
    assert raised.value.line is not None


@pytest.mark.parametrize(("entry", "block", "error"), [("nothing", 32, EmulatorFault), ("clocked", 2048, LaunchError)])
def test_launches_that_make_no_sense(ptx, entry, block, error):
    with pytest.raises(error):
        run(load(ptx), entry, (1, 1, 1), (block, 1, 1), 0, bytes(8), GlobalMemory())
