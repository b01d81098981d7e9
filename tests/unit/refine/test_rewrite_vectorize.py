from collections.abc import Callable

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten, unaligned

from kernel_lsp.refine.rewrites.accesses.vectorize import rewrite

BIAS_GELU = """
__device__ float gelu(float x) { return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }

__global__ void bias_gelu(const float* x, const float* bias, float* y, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int c = i % cols;
    if (i < n) {
        float v = x[i] + bias[c];
        y[i] = gelu(v);
    }
}
"""
WORKLOAD = """
def launch(module, x, bias):
    grid = ((x.numel() + 255) // 256,)
    module.bias_gelu[grid, (256,)](x, bias, y, x.numel(), x.shape[1])
"""
SOFTMAX = """
__global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float red[64];
    const int tid = threadIdx.x;
    const float* row = x + (size_t)blockIdx.x * cols;
    float m = -3.0e38f;
    for (int c = tid; c < cols; c += blockDim.x) m = fmaxf(m, row[c]);
    red[tid] = m;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) red[tid] = fmaxf(red[tid], red[tid + s]);
        __syncthreads();
    }
    m = red[0];
    __syncthreads();
    float sum = 0.0f;
    #pragma unroll 4
    for (int c = tid; c < cols; c += blockDim.x) sum += expf(row[c] - m);
    red[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) red[tid] += red[tid + s];
        __syncthreads();
    }
    float inv = 1.0f / red[0];
    float* out = y + (size_t)blockIdx.x * cols;
    for (int c = tid; c < cols; c += blockDim.x) {
        out[c] = expf(row[c] - m) * inv;
    }
}
"""
SCALE_TEMPLATE = """
#include <cuda_fp16.h>
template <typename T>
__global__ void scale(const T* __restrict__ x, T* y, float a, size_t n) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = static_cast<T>(static_cast<float>(x[i]) * a);
}
template __global__ void scale<__half>(const __half*, __half*, float, size_t);
template __global__ void scale<float>(const float*, float*, float, size_t);
"""
RMSNORM_HALF = """
#include <cuda_fp16.h>
__global__ void rmsnorm(const __half* x, const float* w, __half* y, int cols, float eps) {
    __shared__ float total;
    if (threadIdx.x == 0) total = 0.f;
    __syncthreads();
    int base = blockIdx.x * cols;
    float ss = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float v = __half2float(x[base + c]);
        ss += v * v;
    }
    atomicAdd(&total, ss);
    __syncthreads();
    float r = rsqrtf(total / cols + eps);
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        y[base + c] = __float2half(__half2float(x[base + c]) * r * w[c]);
}
"""
MIXED_SIZES = """
__global__ void dequantize(const unsigned char* q, const short* zero, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        if (q[i] == 7) continue;
        y[i] = 0.5f * (q[i] - zero[i]);
    }
}
"""
IN_PLACE = """
__global__ void relu(float* x, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) x[i] = x[i] > 0.0f ? x[i] : 0.1f * x[i];
}
"""
ROTARY = """
__global__ void rotary(float* __restrict__ q, const float* __restrict__ cs, const float* __restrict__ sn, int pairs,
                       int heads, int half_dim) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) {
        return;
    }
    int d = i % half_dim;
    int head = i / half_dim;  // counted over all tokens
    int token = head / heads;

    float c = cs[token * half_dim + d];
    float s = sn[token * half_dim + d];
    size_t first = (size_t)head * 2 * half_dim + d;
    size_t second = first + half_dim;
    float a = q[first];
    float b = q[second];
    q[first] = a * c - b * s;
    q[second] = a * s + b * c;
}
"""
NEAR_MISSES = {
    "strided": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[2 * i] = x[2 * i];",
    "neighbour": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i + 1] = x[i - 1];",
    "barrier": "for (int i = threadIdx.x; i < n; i += blockDim.x) { y[i] = x[i]; __syncthreads(); }",
    "no bound": "int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i];",
    "gather": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[(int)x[i * n]] = 1.0f;",
    "search": "for (int i = threadIdx.x; i < n; i += blockDim.x) if (x[i] > 0.0f) { y[0] = i; break; }",
    "thread number": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[threadIdx.x] = x[i];",
    "own element across loops": (
        "for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];"
        "for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = y[i] * 2.0f;"
    ),
    "scan": "for (int i = 0; i < n; ++i) y[i] = y[i - 1] + 1.0f;",
    "captured address": "for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&y[i], 1.0f);",
}


@pytest.mark.parametrize(
    ("source", "load", "store"),
    [
        (BIAS_GELU, "ld.global.v4.f32", "st.global.v4.f32"),
        (SOFTMAX, "ld.global.nc.v4.f32", "st.global.v4.f32"),
        (SCALE_TEMPLATE, "ld.global.v4", "st.global.v4"),
        (ROTARY, "ld.global.v4.f32", "st.global.v4.f32"),
        (RMSNORM_HALF, "ld.global.v4", "st.global.v4"),
        (MIXED_SIZES, "ld.global.v4", None),
        (IN_PLACE, "ld.global.v4.f32", "st.global.v4.f32"),
    ],
    ids=["bias_gelu", "softmax", "template", "rotary", "rmsnorm_half", "mixed_sizes", "in_place"],
)
def test_moves_sixteen_bytes_at_a_time(source: str, load: str, store: str | None) -> None:
    candidate = rewritten(rewrite, source)[0]
    assert ".v4" not in ptx(source)
    text = ptx(candidate.kernel.text).replace("v4.u32", "v4.f32").replace("v4.b32", "v4.f32").replace(".nc.", ".")
    assert load.replace(".nc.", ".") in text
    assert store is None or store in text


@pytest.mark.parametrize("body", NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_near_misses_are_left_alone(body: str) -> None:
    source = f"__global__ void f(const float* x, float* y, int n) {{ {body} }}"
    ptx(source)
    assert rewritten(rewrite, source) == []


def test_launch_shrinks_with_the_threads_needed() -> None:
    for candidate in rewritten(rewrite, BIAS_GELU, WORKLOAD):
        assert candidate.launch is not None
        assert "grid = (-(-((x.numel() + 255) // 256) // 4),)" in candidate.launch.text


def test_one_thread_per_row_keeps_its_grid() -> None:
    source = """
__global__ void rows(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float sum = 0.0f;
        for (int c = 0; c < cols; ++c) {
            y[r * cols + c] = expf(x[r * cols + c]);
            sum += y[r * cols + c];
        }
        for (int c = 0; c < cols; ++c) y[r * cols + c] /= sum;
    }
}
"""
    workload = "def launch(module, x):\n    module.rows[((len(x) + 255) // 256,), (256,)](x, y, *x.shape)\n"
    (candidate,) = rewritten(rewrite, source, workload)
    assert candidate.launch is not None
    assert candidate.launch.text == workload
    assert "if (r < rows) {" in candidate.kernel.text
    assert candidate.kernel.text.count("(y_lanes)[0] = reinterpret_cast<const float4*>(y + r * cols)") == 1
    ptx(candidate.kernel.text)


def test_arrays_indexed_by_column_move_as_vectors_too() -> None:
    plain, rows = rewritten(rewrite, BIAS_GELU)
    assert "bias_lanes" not in plain.kernel.text
    assert "reinterpret_cast<const float4*>(bias + (i_column))" in rows.kernel.text


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("n", [1, 3, 64, 67, 257])
def test_every_element_exactly_once(tmp_path_factory: pytest.TempPathFactory, n: int, offset: int) -> None:
    x = unaligned(np.random.default_rng(n).standard_normal(n).astype(np.float32), offset)
    expected = np.where(x > 0, x, np.float32(0.1) * x)
    for grid in (1, 3):
        got = unaligned(x, offset)
        _host(tmp_path_factory, IN_PLACE)(grid, 32, got, n)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("cols", [1, 31, 128, 130, 259])
def test_softmax_rows_of_any_length(tmp_path_factory: pytest.TempPathFactory, cols: int, offset: int) -> None:
    x = unaligned(np.random.default_rng(cols).standard_normal((3, cols)).astype(np.float32), offset)
    y = unaligned(np.full_like(x, np.nan), offset)
    _host(tmp_path_factory, SOFTMAX)(3, 32, x, y, cols)
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, expected / expected.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("n", [5, 160, 1000])
def test_skipped_elements_stay_untouched(tmp_path_factory: pytest.TempPathFactory, n: int) -> None:
    rng = np.random.default_rng(n)
    q, zero = unaligned(rng.integers(0, 9, n, np.uint8), 0), unaligned(rng.integers(-9, 9, n, np.int16), 0)
    y = np.full(n, 99, np.float32)
    _host(tmp_path_factory, MIXED_SIZES)(2, 32, q, zero, y, n)
    np.testing.assert_array_equal(y, np.where(q == 7, np.float32(99), np.float32(0.5) * (q.astype(np.int32) - zero)))


@pytest.mark.parametrize(("rows", "cols"), [(1, 3), (7, 8), (5, 20), (3, 31)])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("offset", [0, 2])
def test_bias_of_rows_of_any_length(
    tmp_path_factory: pytest.TempPathFactory, rows: int, cols: int, which: int, offset: int
) -> None:
    rng = np.random.default_rng(cols)
    x = unaligned(rng.standard_normal((rows, cols)).astype(np.float32), offset)
    bias = rng.standard_normal(cols).astype(np.float32)
    y = unaligned(np.full_like(x, np.nan), offset)
    _host(tmp_path_factory, BIAS_GELU, which)(2, 32, x, bias, y, x.size, cols)
    v = x + bias
    expected = 0.5 * v * (1 + np.tanh(0.79788456 * (v + 0.044715 * v**3)))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("half_dim", [4, 6, 16])
def test_rotary_pairs(tmp_path_factory: pytest.TempPathFactory, half_dim: int) -> None:
    tokens, heads = 3, 5
    rng = np.random.default_rng(half_dim)
    q = rng.standard_normal((tokens, heads, 2, half_dim)).astype(np.float32)
    cs, sn = rng.standard_normal((2, tokens, half_dim)).astype(np.float32)
    a, b = q[:, :, 0], q[:, :, 1]
    c, s = cs[:, None], sn[:, None]
    expected = np.stack([a * c - b * s, a * s + b * c], 2)
    _host(tmp_path_factory, ROTARY)(2, 32, q, cs, sn, tokens * heads * half_dim, heads, half_dim)
    np.testing.assert_allclose(q, expected, rtol=1e-5, atol=1e-6)


_RUNNERS: dict[tuple[str, int], Callable[..., None]] = {}


def _host(folders: pytest.TempPathFactory, source: str, which: int = 0) -> Callable[..., None]:
    if (source, which) not in _RUNNERS:
        candidate = rewritten(rewrite, source)[which]
        _RUNNERS[source, which] = host_runner(folders.mktemp("host"), candidate.kernel.text)
    return _RUNNERS[source, which]
