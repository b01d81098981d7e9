"""Extensions in the many styles that people and models write: each with inputs and what torch says they give."""

# ruff: noqa: E501 (C++ as it is written)

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Wrapper:
    """One extension: `call` uses its module on `inputs`, and `reference` is torch's answer; or an error is expected."""

    name: str
    cuda: str
    cpp: str
    inputs: Callable[[], Sequence[Any]]
    call: Callable[..., Any]
    reference: Callable[..., Any]
    functions: Sequence[str] | dict[str, str] | str | None = None
    flags: Sequence[str] = ()
    raises: tuple[type[Exception], str] | None = None


def _wrapper(
    name: str, cuda: str, cpp: str, inputs: Any, call: Any, reference: Any, *functions: str, **rest: Any
) -> None:
    WRAPPERS.append(Wrapper(name, cuda, cpp, inputs, call, reference, list(functions) or None, **rest))


WRAPPERS: list[Wrapper] = []


def _x(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(dtype)


_ADD = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int size) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < size) { out[idx] = a[idx] + b[idx]; }
}

torch::Tensor add(torch::Tensor a, torch::Tensor b) {
    auto size = a.numel();
    auto out = torch::zeros_like(a);
    const int block_size = 256;
    const int num_blocks = (size + block_size - 1) / block_size;
    add_kernel<<<num_blocks, block_size>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), size);
    return out;
}
"""
_wrapper(
    "plain elementwise, declared for C++", _ADD, "torch::Tensor add(torch::Tensor a, torch::Tensor b);",
    lambda: (_x(1000), _x(1000)), lambda m, a, b: m.add(a, b), torch.add, "add",
)  # fmt: skip
_wrapper(
    "keyword arguments by position names", _ADD, "torch::Tensor add(torch::Tensor a, torch::Tensor b);",
    lambda: (_x(10), _x(10)), lambda m, a, b: m.add(arg1=b, arg0=a), torch.add, "add",
)  # fmt: skip
_wrapper(
    "PYBIND11_MODULE in the CUDA text", _ADD + """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &add, "add (CUDA)", py::arg("a"), py::arg("b"));
}""", "", lambda: (_x(77), _x(77)), lambda m, a, b: m.forward(b=b, a=a), torch.add,
)  # fmt: skip
_wrapper(
    "PYBIND11_MODULE in the C++ text, with checks there", """
__global__ void scale_kernel(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
void scale_cuda(torch::Tensor x, torch::Tensor y, float a) {
  const int n = x.numel();
  scale_kernel<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), a, n);
}""", """
#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)
void scale_cuda(torch::Tensor x, torch::Tensor y, float a);
torch::Tensor scale(torch::Tensor x, double a) {
  CHECK_INPUT(x);
  auto y = torch::empty_like(x);
  scale_cuda(x, y, static_cast<float>(a));
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale, "scale"); }
""", lambda: (_x(300), 2.5), lambda m, x, a: m.scale(x, a), lambda x, a: x * a,
)  # fmt: skip
_wrapper(
    "a check that throws", _ADD.replace("auto size", 'TORCH_CHECK(a.dim() == 2, "want 2 dimensions, got ", a.dim()); auto size'),
    "torch::Tensor add(torch::Tensor a, torch::Tensor b);",
    lambda: (_x(10), _x(10)), lambda m, a, b: m.add(a, b), torch.add, "add",
    raises=(RuntimeError, "want 2 dimensions, got 1"),
)  # fmt: skip
_wrapper(
    "data_ptr of another type", _ADD, "torch::Tensor add(torch::Tensor a, torch::Tensor b);",
    lambda: (_x(10).double(), _x(10).double()), lambda m, a, b: m.add(a, b), torch.add, "add",
    raises=(RuntimeError, "expected scalar type Float but found Double"),
)  # fmt: skip
_wrapper(
    "wrong arguments", _ADD, "torch::Tensor add(torch::Tensor a, torch::Tensor b);",
    lambda: (_x(10),), lambda m, a: m.add(a, 1.5), torch.add, "add",
    raises=(TypeError, r"add\(\): incompatible function arguments(.|\n)*Invoked with: Tensor, float"),
)  # fmt: skip
_DISPATCH = """
template <typename scalar_t>
__global__ void square_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, size_t n) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
torch::Tensor square(const torch::Tensor& x) {
  auto y = torch::empty_like(x);
  const int threads = 128;
  const dim3 blocks((x.numel() + threads - 1) / threads);
  %s(x.scalar_type(), "square_cuda", ([&] {
    square_kernel<scalar_t><<<blocks, threads>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  }));
  return y;
}
"""
for _macro, _dtype in [
    ("AT_DISPATCH_FLOATING_TYPES", torch.float64),
    ("AT_DISPATCH_FLOATING_TYPES_AND_HALF", torch.float16),
    ("AT_DISPATCH_ALL_TYPES", torch.int64),
    ("AT_DISPATCH_INTEGRAL_TYPES", torch.uint8),
    ("AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16,", torch.bfloat16),
]:
    _text = _DISPATCH % _macro
    _text = _text.replace(",(x.scalar", ", x.scalar").replace("BFloat16,(", "BFloat16, ")
    _wrapper(
        f"{_macro.split('(')[0]}, {_dtype}", _text, "torch::Tensor square(const torch::Tensor& x);",
        lambda dtype=_dtype: ((_x(200) * 4).to(dtype),), lambda m, x: m.square(x), lambda x: x * x, "square",
    )  # fmt: skip
_wrapper(
    "dispatch on a type that is not there", _DISPATCH % "AT_DISPATCH_FLOATING_TYPES",
    "torch::Tensor square(const torch::Tensor& x);", lambda: (torch.ones(4, dtype=torch.int32),),
    lambda m, x: m.square(x), lambda x: x, "square",
    raises=(NotImplementedError, "\"square_cuda\" not implemented for 'Int'"),
)  # fmt: skip
_wrapper(
    "row softmax with dynamic shared memory", """
#include <cfloat>
__global__ void softmax_kernel(const float* x, float* y, int cols) {
  extern __shared__ float buffer[];
  const float* row = x + blockIdx.x * cols;
  float m = -FLT_MAX;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) m = fmaxf(m, row[i]);
  buffer[threadIdx.x] = m;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) buffer[threadIdx.x] = fmaxf(buffer[threadIdx.x], buffer[threadIdx.x + s]);
    __syncthreads();
  }
  m = buffer[0];
  __syncthreads();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += expf(row[i] - m);
  buffer[threadIdx.x] = sum;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) buffer[threadIdx.x] += buffer[threadIdx.x + s];
    __syncthreads();
  }
  sum = buffer[0];
  for (int i = threadIdx.x; i < cols; i += blockDim.x) y[blockIdx.x * cols + i] = expf(row[i] - m) / sum;
}
torch::Tensor softmax(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 2);
  auto y = torch::empty({x.size(0), x.size(1)}, x.options());
  const int threads = 128;
  softmax_kernel<<<x.size(0), threads, threads * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}""", "torch::Tensor softmax(torch::Tensor x);",
    lambda: (_x(5, 333),), lambda m, x: m.softmax(x), lambda x: torch.softmax(x, 1), "softmax",
)  # fmt: skip
_wrapper(
    "tiled matrix product on a 2-D grid with a #define", """
#define TILE 16
__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float As[TILE][TILE];
  __shared__ float Bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
    As[threadIdx.y][threadIdx.x] = row < M && t * TILE + threadIdx.x < K ? A[row * K + t * TILE + threadIdx.x] : 0.0f;
    Bs[threadIdx.y][threadIdx.x] = col < N && t * TILE + threadIdx.y < K ? B[(t * TILE + threadIdx.y) * N + col] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = sum;
}
torch::Tensor mm(torch::Tensor A, torch::Tensor B) {
  int M = A.size(0), K = A.size(1), N = B.size(-1);
  auto C = torch::zeros({M, N}, A.options());
  dim3 threads(TILE, TILE);
  dim3 blocks((N + threads.x - 1) / threads.x, (M + threads.y - 1) / threads.y);
  matmul<<<blocks, threads>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
  cudaError_t err = cudaGetLastError();
  if (err != cudaSuccess) { printf("CUDA error: %s\\n", cudaGetErrorString(err)); }
  return C;
}""", "torch::Tensor mm(torch::Tensor A, torch::Tensor B);",
    lambda: (_x(20, 33), _x(33, 40)), lambda m, a, b: m.mm(a, b), torch.mm, "mm",
)  # fmt: skip
_wrapper(
    "template on a block size and on a functor", """
struct Relu { __device__ float operator()(float v) const { return v > 0.f ? v : 0.f; } };
struct Leaky { float slope; __device__ float operator()(float v) const { return v > 0.f ? v : slope * v; } };
template <int BLOCK, typename Op>
__global__ __launch_bounds__(BLOCK) void apply(const float* x, float* y, int n, Op op) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = op(x[i]);
}
torch::Tensor act(torch::Tensor x, double slope) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  if (slope == 0) apply<64><<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, Relu());
  else apply<128, Leaky><<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, Leaky{float(slope)});
  return y;
}""", "torch::Tensor act(torch::Tensor x, double slope);",
    lambda: (_x(500),), lambda m, x: torch.cat([m.act(x, 0), m.act(x, 0.25)]),
    lambda x: torch.cat([torch.relu(x), torch.nn.functional.leaky_relu(x, 0.25)]), "act",
)  # fmt: skip
_wrapper(
    "a template's arguments deduced, default arguments, overloads", """
template <typename T> __global__ void fill(T* y, int n, T v) { if (threadIdx.x < n) y[threadIdx.x] = v; }
__global__ void bump(float* y) { y[threadIdx.x] += 1.0f; }
__global__ void bump(double* y) { y[threadIdx.x] += 2.0; }
std::vector<torch::Tensor> both(int64_t n, const torch::Tensor& like) {
  auto a = torch::empty({n}, like.options()), b = torch::empty({n}, like.options().dtype(torch::kFloat64));
  fill<<<1, 32>>>(a.data_ptr<float>(), n, 1.0f);
  fill<<<1, 32>>>(b.data_ptr<double>(), (int)n, 2.0);
  bump<<<1, n>>>(a.data_ptr<float>());
  bump<<<1, n>>>(b.data_ptr<double>());
  return {a, b};
}""", "std::vector<torch::Tensor> both(int64_t n, const torch::Tensor& like);",
    lambda: (7, _x(1)), lambda m, n, like: m.both(n, like),
    lambda n, like: [torch.full((n,), 2.0), torch.full((n,), 4.0, dtype=torch.float64)], "both",
)  # fmt: skip
_wrapper(
    "a tuple as result, optional arguments", """
__global__ void affine(const float* x, const float* w, const float* b, float* y, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = x[i] * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}
std::tuple<torch::Tensor, int64_t> run(torch::Tensor x, c10::optional<torch::Tensor> w, std::optional<torch::Tensor> b) {
  auto y = torch::empty_like(x);
  const float* bias = b.has_value() && b->defined() ? b->data_ptr<float>() : nullptr;
  affine<<<1, 64>>>(x.data_ptr<float>(), w ? w.value().data_ptr<float>() : nullptr, bias, y.data_ptr<float>(), x.numel());
  return std::make_tuple(y, x.numel());
}""", "std::tuple<torch::Tensor, int64_t> run(torch::Tensor x, c10::optional<torch::Tensor> w, std::optional<torch::Tensor> b);",
    lambda: (_x(40), _x(40)), lambda m, x, w: (*m.run(x, w, None), *m.run(x, None, w)),
    lambda x, w: (x * w, 40, x + w, 40), "run",
)  # fmt: skip
_wrapper(
    "defaults and several functions of one name", """
__global__ void fma1(const float* x, float* y, float a, float b, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + b;
}
at::Tensor go(at::Tensor x, float a, float b) {
  at::Tensor y = at::empty_like(x);
  fma1<<<2, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), a, b, x.numel());
  return y;
}
at::Tensor go_all(std::vector<at::Tensor> xs) { return go(at::cat(xs, 0), 1, 0); }
""", """
at::Tensor go(at::Tensor x, float a, float b);
at::Tensor go_all(std::vector<at::Tensor> xs);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("go", &go, "affine", py::arg("x"), py::arg("a") = 3.0, pybind11::arg("b") = 0.5f);
  m.def("go", &go_all);
  m.def("twice", [](torch::Tensor x) { return go(x, 2.0f, 0.0f); });
}""", lambda: (_x(100),), lambda m, x: (m.go(x), m.go(x, b=1.0), m.go([x, x]), m.twice(x)),
    lambda x: (x * 3 + 0.5, x * 3 + 1, torch.cat([x, x]), x * 2),
)  # fmt: skip
_wrapper(
    "a tensor that is none by default", """
__global__ void added(const float* x, const float* bias, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + (bias ? bias[i] : 1.f);
}
at::Tensor go(at::Tensor x, const c10::optional<at::Tensor>& bias, std::vector<int64_t> sizes) {
  at::Tensor y = sizes.empty() ? at::empty_like(x) : at::empty(sizes, x.options());
  added<<<4, 32>>>(x.data_ptr<float>(), bias ? bias->data_ptr<float>() : nullptr, y.data_ptr<float>(), x.numel());
  return y;
}
""", """
at::Tensor go(at::Tensor x, const c10::optional<at::Tensor>& bias, std::vector<int64_t> sizes);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("go", &go, py::arg("x"), py::arg("bias") = py::none(), py::arg("sizes") = std::vector<int64_t>{});
}""", lambda: (_x(100),), lambda m, x: (m.go(x), m.go(x, bias=x), m.go(x, sizes=[10, 10])),
    lambda x: (x + 1, x + x, (x + 1).view(10, 10)),
)  # fmt: skip
_wrapper(
    "streams, guards and launch checks", """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>
#define CUDA_OK(call) do { cudaError_t e = (call); TORCH_CHECK(e == cudaSuccess, cudaGetErrorString(e)); } while (0)
static inline int div_up(int a, int b) { return (a + b - 1) / b; }
namespace {
__global__ void neg_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = -x[i];
}
}  // namespace
torch::Tensor neg(torch::Tensor x) {
  at::cuda::CUDAGuard device_guard(x.device());
  const at::cuda::OptionalCUDAGuard other(device_of(x));
  cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
  auto x_ = x.contiguous();
  auto y = torch::empty_like(x_);
  neg_kernel<<<div_up(x.numel(), 64), 64, 0, stream>>>(x_.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  CUDA_OK(cudaGetLastError());
  CUDA_OK(cudaDeviceSynchronize());
  return y;
}""", "torch::Tensor neg(torch::Tensor x);",
    lambda: (_x(20, 30).t(),), lambda m, x: m.neg(x), torch.neg, "neg",
)  # fmt: skip
_wrapper(
    "warp shuffles, device functions of templates, a grid-stride loop and atomics", """
template <typename T>
__device__ __forceinline__ T warp_sum(T v) {
  #pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffff, v, offset);
  return v;
}
__global__ void sum_kernel(const float* __restrict__ x, float* out, int64_t n) {
  __shared__ float parts[32];
  float v = 0;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) v += x[i];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.f;
    v = warp_sum(v);
    if (threadIdx.x == 0) atomicAdd(out, v);
  }
}
torch::Tensor total(torch::Tensor x) {
  auto out = torch::zeros({1}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
  sum_kernel<<<4, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
  return out.squeeze();
}""", "torch::Tensor total(torch::Tensor x);",
    lambda: (_x(3000),), lambda m, x: m.total(x), torch.sum, "total",
)  # fmt: skip
_wrapper(
    "vector types and aligned casts", """
__global__ void copy4(const float4* __restrict__ x, float4* __restrict__ y, int n4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n4) { float4 v = x[i]; v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2; y[i] = v; }
}
torch::Tensor double4(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n4 = x.numel() / 4;
  copy4<<<(n4 + 31) / 32, 32>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()),
                                 reinterpret_cast<float4*>(y.data_ptr<float>()), n4);
  return y;
}""", "torch::Tensor double4(torch::Tensor x);",
    lambda: (_x(64, 4),), lambda m, x: m.double4(x), lambda x: x * 2, "double4",
)  # fmt: skip
_wrapper(
    "half of CUDA's own headers", """
#include <cuda_fp16.h>
__global__ void halve(const __half* x, half* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2half(__half2float(x[i]) * 0.5f);
}
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.dtype() == torch::kFloat16, "half only, not ", x.dtype());
  auto y = torch::empty_like(x);
  halve<<<(x.numel() + 255) / 256, 256>>>(reinterpret_cast<const __half*>(x.data_ptr<at::Half>()),
      reinterpret_cast<half*>(y.data_ptr<at::Half>()), x.numel());
  return y;
}""", "torch::Tensor run(torch::Tensor x);",
    lambda: (_x(100).half(),), lambda m, x: m.run(x), lambda x: x * 0.5, "run",
)  # fmt: skip
_wrapper(
    "bfloat16 of CUDA's own headers", """
#include <cuda_bf16.h>
__global__ void add_one(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2bfloat16(__bfloat162float(x[i]) + 1.0f);
}
torch::Tensor run(torch::Tensor x) {
  auto y = at::empty(x.sizes(), x.options());
  add_one<<<1, 128>>>((const __nv_bfloat16*)x.data_ptr(), (__nv_bfloat16*)y.data_ptr(), (int)x.numel());
  return y;
}""", "torch::Tensor run(torch::Tensor x);",
    lambda: (_x(100).bfloat16(),), lambda m, x: m.run(x), lambda x: x + 1, "run",
)  # fmt: skip
_wrapper(
    "c10::Half computed with in the kernel", """
template <typename scalar_t>
__global__ void gelu(const scalar_t* x, scalar_t* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const scalar_t v = x[i];
  const scalar_t t = static_cast<scalar_t>(0.5) * v * (scalar_t(1) + static_cast<scalar_t>(erff(static_cast<float>(v) * 0.70710678f)));
  y[i] = t > scalar_t(0) ? t : t * scalar_t(1.0f);
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "gelu", [&]() {
    gelu<scalar_t><<<1, 128>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  return y;
}""", "torch::Tensor run(torch::Tensor x);",
    lambda: (_x(100).half(),), lambda m, x: m.run(x), torch.nn.functional.gelu, "run",
)  # fmt: skip
_wrapper(
    "several kernels in turn through scratch memory", """
__global__ void row_sums(const float* x, float* s, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += x[r * cols + c]; s[r] = t; }
}
__global__ void divide(const float* x, const float* s, float* y, int rows, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols) y[i] = x[i] / s[i / cols];
}
torch::Tensor normalise(torch::Tensor x) {
  int rows = x.size(0), cols = x.size(1);
  torch::Tensor sums = torch::empty({rows}, x.options()), y = torch::empty_like(x);
  row_sums<<<1, 32>>>(x.data_ptr<float>(), sums.data_ptr<float>(), rows, cols);
  divide<<<(rows * cols + 63) / 64, 64>>>(x.data_ptr<float>(), sums.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
  return y;
}""", "torch::Tensor normalise(torch::Tensor x);",
    lambda: (torch.rand(9, 21) + 0.1,), lambda m, x: m.normalise(x), lambda x: x / x.sum(1, keepdim=True), "normalise",
)  # fmt: skip
_wrapper(
    "in place, nothing returned, a dictionary of functions", """
__global__ void clamp_kernel(float* x, float lo, float hi, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = fminf(fmaxf(x[i], lo), hi);
}
void clamp_(torch::Tensor x, float lo, float hi) {
  clamp_kernel<<<(x.numel() + 31) / 32, 32>>>(x.data_ptr<float>(), lo, hi, x.numel());
}""", "void clamp_(torch::Tensor x, float lo, float hi);",
    lambda: (_x(50),), lambda m, x: (lambda y: (m.clamp_(y, -0.5, 0.5), y)[1])(x.clone()),
    lambda x: x.clamp(-0.5, 0.5), "clamp_",
)  # fmt: skip
_wrapper(
    "torch's own operations around the kernel", """
__global__ void twice(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 2 * x[i]; }
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  auto h = torch::matmul(x, w.t()) + b.unsqueeze(0);
  h = torch::relu(h).mul(0.5).contiguous().view({-1});
  auto y = torch::empty_like(h);
  twice<<<1, 128>>>(h.data_ptr<float>(), y.data_ptr<float>(), h.numel());
  y = y.reshape({x.size(0), w.size(0)}).transpose(0, 1);
  return (y - y.mean({1}, true)).sum(-1, /*keepdim=*/false).to(torch::kFloat64) / 3.0;
}""", "torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b);",
    lambda: (_x(4, 8), _x(6, 8), _x(6)), lambda m, *a: m.run(*a),
    lambda x, w, b: ((h := torch.relu(x @ w.t() + b).t()) - h.mean(1, True)).sum(-1).double() / 3, "run",
)  # fmt: skip
_wrapper(
    "more shared memory than the default, allowed", """
template <int N> __global__ void reverse(const float* x, float* y) {
  extern __shared__ float s[];
  for (int i = threadIdx.x; i < N; i += blockDim.x) s[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < N; i += blockDim.x) y[i] = s[N - 1 - i];
}
torch::Tensor run(torch::Tensor x) {
  constexpr int N = 16384;
  auto y = torch::empty_like(x);
  auto kernel = reverse<N>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, N * sizeof(float));
  kernel<<<1, 256, N * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}""", "torch::Tensor run(torch::Tensor x);",
    lambda: (_x(16384),), lambda m, x: m.run(x), lambda x: x.flip(0), "run",
)  # fmt: skip
_wrapper(
    "more shared memory than the default, not allowed", """
__global__ void k(float* y) { extern __shared__ float s[]; s[0] = 1; y[0] = s[0]; }
torch::Tensor run(torch::Tensor x) { k<<<1, 1, 60000>>>(x.data_ptr<float>()); return x; }
""", "torch::Tensor run(torch::Tensor x);",
    lambda: (_x(1),), lambda m, x: m.run(x), lambda x: x, "run", raises=(Exception, "60000 bytes of dynamic shared"),
)  # fmt: skip
_wrapper(
    "too many threads", """
__global__ void k(float* y) { y[0] = 1; }
torch::Tensor run(torch::Tensor x) { k<<<1, 2048>>>(x.data_ptr<float>()); return x; }
""", "torch::Tensor run(torch::Tensor x);",
    lambda: (_x(1),), lambda m, x: m.run(x), lambda x: x, "run", raises=(Exception, "invalid configuration"),
)  # fmt: skip
_wrapper(
    "cudaLaunchKernel, pointers to kernels, a table of them", """
__global__ void plus(float* y, int v) { y[threadIdx.x] += v; }
__global__ void times(float* y, int v) { y[threadIdx.x] *= v; }
torch::Tensor run(torch::Tensor x, int which) {
  auto y = x.clone();
  float* p = y.data_ptr<float>();
  int v = 3;
  void* args[] = {&p, &v};
  cudaLaunchKernel((void*)plus, dim3(1), dim3(y.numel()), args, 0, 0);
  void (*table[])(float*, int) = {plus, times};
  table[which]<<<1, y.numel()>>>(p, v);
  return y;
}""", "torch::Tensor run(torch::Tensor x, int which);",
    lambda: (_x(16),), lambda m, x: (m.run(x, 0), m.run(x, 1)), lambda x: (x + 6, (x + 3) * 3), "run",
)  # fmt: skip
_wrapper(
    "cudaMemsetAsync and cudaMemcpyAsync", """
__global__ void histogram(const int* x, int* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[x[i]], 1);
}
std::vector<at::Tensor> run(at::Tensor x, int64_t bins) {
  auto y = at::empty({bins}, x.options()), z = at::empty_like(y);
  auto s = at::cuda::getCurrentCUDAStream();
  cudaMemsetAsync(y.data_ptr<int>(), 0, bins * sizeof(int), s);
  histogram<<<(x.numel() + 63) / 64, 64, 0, s>>>(x.data_ptr<int>(), y.data_ptr<int>(), x.numel());
  cudaMemcpyAsync(z.data_ptr<int>(), y.data_ptr<int>(), bins * sizeof(int), cudaMemcpyDeviceToDevice, s);
  return {y, z};
}""", "std::vector<at::Tensor> run(at::Tensor x, int64_t bins);",
    lambda: (torch.randint(0, 10, (300,), dtype=torch.int32),), lambda m, x: m.run(x, 10),
    lambda x: [torch.bincount(x, minlength=10).int()] * 2, "run",
)  # fmt: skip
_wrapper(
    "properties of the device decide the grid", """
__global__ void inc(float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += 1;
}
torch::Tensor run(torch::Tensor x) {
  auto y = x.clone();
  int device, sms, resident;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, inc, 128, 0);
  TORCH_CHECK(sms == at::cuda::getCurrentDeviceProperties()->multiProcessorCount && resident > 0);
  inc<<<std::min<int>(sms * resident, 3), 128>>>(y.data_ptr<float>(), y.numel());
  return y;
}""", "torch::Tensor run(torch::Tensor x);", lambda: (_x(1000),), lambda m, x: m.run(x), lambda x: x + 1, "run",
)  # fmt: skip
_wrapper(
    "kernels made by a macro", """
#define UNARY(NAME, EXPRESSION)                                          \\
  __global__ void NAME##_kernel(const float* x, float* y, int n) {      \\
    int i = blockIdx.x * blockDim.x + threadIdx.x;                       \\
    if (i < n) { float v = x[i]; y[i] = (EXPRESSION); }                  \\
  }
UNARY(sq, v * v)
UNARY(cube, v * v * v)
#define LAUNCH(NAME, x, y) NAME##_kernel<<<(x.numel() + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel())
torch::Tensor run(torch::Tensor x, bool third) {
  auto y = torch::empty_like(x);
  if (third) LAUNCH(cube, x, y); else LAUNCH(sq, x, y);
  return y;
}""", "torch::Tensor run(torch::Tensor x, bool third);",
    lambda: (_x(70),), lambda m, x: (m.run(x, True), m.run(x, False)), lambda x: (x**3, x**2), "run",
)  # fmt: skip
_wrapper(
    "a structure as parameter, host and device functions, constants, namespaces", """
namespace ops {
constexpr int kThreads = 64;
enum class Mode { kAdd, kMul };
struct Params {
  const float* x; float* y; int n; float a;
  __host__ __device__ int blocks() const { return (n + kThreads - 1) / kThreads; }
  __device__ float at(int i) const { return __ldg(x + i); }
};
__host__ __device__ inline float mix(float a, float b) { return 0.5f * (a + b); }
__device__ float twist(float v) { return __fmul_rn(v, 2.0f); }
template <Mode M> __global__ void run_kernel(const Params p) {
  int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < p.n) p.y[i] = M == Mode::kAdd ? mix(p.at(i), p.a) : twist(p.at(i));
}
torch::Tensor run(torch::Tensor x, std::string mode) {
  auto y = torch::empty_like(x);
  Params p{x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(x.numel()), mix(1.0f, 3.0f)};
  if (mode == "add") run_kernel<Mode::kAdd><<<p.blocks(), kThreads>>>(p);
  else if (mode == "mul") ops::run_kernel<ops::Mode::kMul><<<p.blocks(), kThreads>>>(p);
  else AT_ERROR("unknown mode ", mode);
  return y;
}
}  // namespace ops
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &ops::run); }
""", "", lambda: (_x(100),), lambda m, x: (m.run(x, "add"), m.run(x, "mul")), lambda x: ((x + 2) / 2, x * 2),
)  # fmt: skip
_wrapper(
    "cooperative groups", """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__device__ float reduce_tile(cg::thread_block_tile<32> tile, float v) {
  for (int o = 16; o; o /= 2) v += tile.shfl_xor(v, o);
  return v;
}
__global__ void rows(const float* x, float* y) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  float v = reduce_tile(tile, x[blockIdx.x * 32 + threadIdx.x]);
  if (tile.thread_rank() == 0) y[blockIdx.x] = v;
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty({x.size(0)}, x.options());
  rows<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}""", "torch::Tensor run(torch::Tensor x);",
    lambda: (_x(6, 32),), lambda m, x: m.run(x), lambda x: x.sum(1), "run",
)  # fmt: skip
_wrapper(
    "flags: a definition for both sides, options without meaning here", """
__global__ void k(float* y) { y[threadIdx.x] = SIZE; }
torch::Tensor run(torch::Tensor x) { auto y = torch::empty({SIZE}, x.options()); k<<<1, SIZE>>>(y.data_ptr<float>()); return y; }
""", "torch::Tensor run(torch::Tensor x);", lambda: (_x(1),), lambda m, x: m.run(x), lambda x: torch.full((24,), 24.0), "run",
    flags=("-O3", "--use_fast_math", "-DSIZE=24", "-lineinfo", "-Xptxas", "-v", "--expt-relaxed-constexpr",
           "-gencode=arch=compute_90,code=sm_90"),
)  # fmt: skip
_wrapper(
    "templates with integers and booleans from a switch", """
template <typename T, int VEC, bool BIAS>
__global__ void k(const T* x, const T* b, T* y, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  #pragma unroll
  for (int j = 0; j < VEC; ++j) if (i + j < n) y[i + j] = x[i + j] + (BIAS ? b[i + j] : T(0));
}
template <typename T, int VEC>
void launch(const T* x, const T* b, T* y, int n) {
  dim3 grid((n + 32 * VEC - 1) / (32 * VEC)), block(32);
  if (b) k<T, VEC, true><<<grid, block>>>(x, b, y, n);
  else k<T, VEC, false><<<grid, block>>>(x, b, y, n);
}
torch::Tensor run(torch::Tensor x, torch::Tensor b, int vec) {
  auto y = torch::empty_like(x);
  float *px = x.data_ptr<float>(), *pb = b.numel() ? b.data_ptr<float>() : nullptr, *py = y.data_ptr<float>();
  switch (vec) {
    case 1: launch<float, 1>(px, pb, py, x.numel()); break;
    case 4: launch<float, 4>(px, pb, py, x.numel()); break;
    default: throw std::invalid_argument("vec");
  }
  return y;
}""", "torch::Tensor run(torch::Tensor x, torch::Tensor b, int vec);",
    lambda: (_x(130), _x(130)), lambda m, x, b: (m.run(x, b, 1), m.run(x, torch.empty(0), 4)), lambda x, b: (x + b, x), "run",
)  # fmt: skip
_wrapper(
    "a C++ exception of its own kind", """
__global__ void k() {}
torch::Tensor run(torch::Tensor x) { if (x.numel()) throw std::invalid_argument("no elements, please"); return x; }
""", "torch::Tensor run(torch::Tensor x);", lambda: (_x(1),), lambda m, x: m.run(x), lambda x: x, "run",
    raises=(ValueError, "no elements, please"),
)  # fmt: skip
_wrapper(
    "batched over a 3-D grid", """
__global__ void scale3(const float* x, float* y, int H, int W, float a) {
  int w = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y * blockDim.y + threadIdx.y;
  if (h < H && w < W) { int i = (blockIdx.z * H + h) * W + w; y[i] = a * x[i] + blockIdx.z; }
}
torch::Tensor run(torch::Tensor x, double a) {
  const auto B = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
  auto y = torch::empty({B, C, H, W}, torch::dtype(torch::kFloat).device(torch::kCUDA));
  scale3<<<dim3((W + 7) / 8, (H + 7) / 8, B * C), dim3(8, 8)>>>(x.data_ptr<float>(), y.data_ptr<float>(), H, W, a);
  return y;
}""", "torch::Tensor run(torch::Tensor x, double a);", lambda: (_x(2, 3, 9, 10),), lambda m, x: m.run(x, 2),
    lambda x: 2 * x + torch.arange(6.0).view(2, 3, 1, 1), "run",
)  # fmt: skip
_wrapper(
    "lists of numbers, scalars and dtypes as arguments", """
template <typename T> __global__ void set(T* y, T v, int n) { for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = v; }
torch::Tensor filled(std::vector<int64_t> size, at::Scalar v, at::ScalarType type, torch::Tensor like) {
  auto y = torch::empty(size, like.options().dtype(type));
  AT_DISPATCH_ALL_TYPES(type, "filled", [&] { set<scalar_t><<<1, 32>>>(y.data_ptr<scalar_t>(), v.to<scalar_t>(), y.numel()); });
  return y;
}""", "torch::Tensor filled(std::vector<int64_t> size, at::Scalar v, at::ScalarType type, torch::Tensor like);",
    lambda: (_x(1),), lambda m, x: (m.filled([3, 4], 2.5, torch.float64, x), m.filled((5,), 7, torch.int32, x)),
    lambda x: (torch.full((3, 4), 2.5, dtype=torch.float64), torch.full((5,), 7, dtype=torch.int32)), "filled",
)  # fmt: skip
_wrapper(
    "C++ alone, without any kernel", "", """
torch::Tensor mish(torch::Tensor x) { return x * torch::tanh(torch::log1p(torch::exp(x))); }
""", lambda: (_x(20),), lambda m, x: m.mish(x), torch.nn.functional.mish, "mish",
)  # fmt: skip
_wrapper(
    "the maximum with its places, items and shapes", """
__global__ void touch(float* x) { x[0] = x[0]; }
std::tuple<torch::Tensor, torch::Tensor, double> run(torch::Tensor x) {
  touch<<<1, 1>>>(x.data_ptr<float>());
  auto [values, places] = x.max(1);
  TORCH_CHECK(values.sizes() == places.sizes() && values.sizes().vec() == std::vector<int64_t>{x.size(0)}, values.sizes());
  return {values, places, values.sum().item<double>()};
}""", "std::tuple<torch::Tensor, torch::Tensor, double> run(torch::Tensor x);",
    lambda: (_x(5, 6),), lambda m, x: m.run(x), lambda x: (*x.max(1), x.max(1)[0].sum().item()), "run",
)  # fmt: skip
