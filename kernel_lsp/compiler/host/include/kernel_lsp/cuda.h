// CUDA's runtime as far as host wrappers use it: words of the language, vector types, streams, and launches.
#pragma once

#include "tensor.h"

#define __host__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
// A stub's code says which kernel is meant: it must stay a function of its own.
#define __global__ __attribute__((noipa))

struct dim3 {
  unsigned int x = 1, y = 1, z = 1;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

#define KERNEL_LSP_VECTORS(type, name, align2, align4)                                                              \
  struct name##1 { type x; };                                                                                       \
  struct __align__(align2) name##2 { type x, y; };                                                                  \
  struct name##3 { type x, y, z; };                                                                                 \
  struct __align__(align4) name##4 { type x, y, z, w; };                                                            \
  inline name##1 make_##name##1(type x) { return {x}; }                                                             \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                  \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                       \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
KERNEL_LSP_VECTORS(signed char, char, 2, 4)
KERNEL_LSP_VECTORS(unsigned char, uchar, 2, 4)
KERNEL_LSP_VECTORS(short, short, 4, 8)
KERNEL_LSP_VECTORS(unsigned short, ushort, 4, 8)
KERNEL_LSP_VECTORS(int, int, 8, 16)
KERNEL_LSP_VECTORS(unsigned int, uint, 8, 16)
KERNEL_LSP_VECTORS(long, long, 16, 16)
KERNEL_LSP_VECTORS(unsigned long, ulong, 16, 16)
KERNEL_LSP_VECTORS(long long, longlong, 16, 16)
KERNEL_LSP_VECTORS(unsigned long long, ulonglong, 16, 16)
KERNEL_LSP_VECTORS(float, float, 8, 16)
KERNEL_LSP_VECTORS(double, double, 16, 16)
#undef KERNEL_LSP_VECTORS

// Values of these types pass through host code and are seldom computed with there.
struct __align__(2) __half {
  unsigned short bits;
  __half() = default;
  __half(float value) : bits(c10::detail::float_to_half(value)) {}  // NOLINT
  operator float() const { return c10::detail::half_to_float(bits); }
};
struct __align__(2) __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(c10::detail::float_to_bfloat16(value)) {}  // NOLINT
  operator float() const { return c10::detail::bfloat16_to_float(bits); }
};
struct __align__(4) __half2 { __half x, y; };
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
inline __half __float2half(float value) { return __half(value); }
inline float __half2float(__half value) { return value; }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline double rsqrt(double value) { return 1.0 / std::sqrt(value); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned int min(unsigned int a, unsigned int b) { return a < b ? a : b; }
inline unsigned int max(unsigned int a, unsigned int b) { return a > b ? a : b; }
inline long min(long a, long b) { return a < b ? a : b; }
inline long max(long a, long b) { return a > b ? a : b; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

// Namespaces of device code, so that host code may say `namespace cg = cooperative_groups`.
namespace cooperative_groups {}
namespace nvcuda::wmma {}
namespace nvcuda::experimental {}
namespace cub {}

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
using cudaError = cudaError_t;
struct CUstream_st;
using cudaStream_t = CUstream_st*;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedmemCarveout {
  cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxL1 = 0, cudaSharedmemCarveoutMaxShared = 100
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16, cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, l2CacheSize;
};
inline const char* cudaGetErrorString(cudaError_t error) { return error ? "invalid argument" : "no error"; }
inline const char* cudaGetErrorName(cudaError_t error) { return error ? "cudaErrorInvalidValue" : "cudaSuccess"; }
// What goes wrong in a launch or a copy is an exception at once, so that there is never an error to be asked for.
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));

namespace kernel_lsp {

/// Where in this library code lies: its symbol table tells which kernel that is.
inline long long place(const void* code) { return static_cast<const char*>(code) - __ehdr_start; }

Ref invoke(const char* method, std::initializer_list<long long> numbers);
long long number_of(const char* method, std::initializer_list<long long> numbers);
inline long long handle(const void* pointer) { return reinterpret_cast<long long>(pointer); }

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
extern std::vector<Configuration> configurations;

void configure(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr);
void launch(const void* code, const Configuration& how, void** arguments);
/// The body of every stub. The address it returns to lies in the stub.
__attribute__((noipa)) void launch_this(void** arguments);

}  // namespace kernel_lsp

template <class Function>
cudaError_t cudaLaunchKernel(
    Function* kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr) {
  kernel_lsp::launch(reinterpret_cast<const void*>(kernel), {grid, block, shared, stream}, arguments);
  return cudaSuccess;
}
template <class Function>
cudaError_t cudaFuncSetAttribute(Function* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
    kernel_lsp::invoke("allow_shared", {kernel_lsp::place(reinterpret_cast<const void*>(kernel)), value});
  return cudaSuccess;
}
template <class Function>
cudaError_t cudaFuncSetCacheConfig(Function*, cudaFuncCache) { return cudaSuccess; }
template <class Function>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* kernel, int threads, size_t shared) {
  *blocks = static_cast<int>(kernel_lsp::number_of(
      "resident_blocks",
      {kernel_lsp::place(reinterpret_cast<const void*>(kernel)), threads, static_cast<long long>(shared)}));
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return kernel_lsp::invoke("synchronize", {0}), cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr);
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes); }
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
inline cudaError_t cudaGetDevice(int* device) {
  *device = static_cast<int>(kernel_lsp::number_of("current_device", {}));
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = static_cast<int>(kernel_lsp::number_of("device_attribute", {attribute}));
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);

namespace c10::cuda {
class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }  // NOLINT
  DeviceIndex device_index() const { return static_cast<DeviceIndex>(kernel_lsp::number_of("current_device", {})); }
  void synchronize() const { cudaDeviceSynchronize(); }

 private:
  cudaStream_t stream_;
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) {
  return CUDAStream(reinterpret_cast<cudaStream_t>(kernel_lsp::number_of("current_stream", {})));
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return CUDAStream(nullptr); }
inline DeviceIndex current_device() { return static_cast<DeviceIndex>(kernel_lsp::number_of("current_device", {})); }
// A worker sees one GPU, so that there is none to change to.
struct CUDAGuard {
  explicit CUDAGuard(Device) {}
  explicit CUDAGuard(DeviceIndex) {}
  void set_index(DeviceIndex) {}
  void set_device(Device) {}
};
struct OptionalCUDAGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device>) {}
  explicit OptionalCUDAGuard(Device) {}
  explicit OptionalCUDAGuard(DeviceIndex) {}
};
}  // namespace c10::cuda
namespace c10 {
using DeviceGuard = cuda::CUDAGuard;
using OptionalDeviceGuard = cuda::OptionalCUDAGuard;
}  // namespace c10
namespace at {
using c10::DeviceGuard;
using c10::OptionalDeviceGuard;
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}
}  // namespace at
namespace at::cuda {
using namespace c10::cuda;
cudaDeviceProp* getCurrentDeviceProperties();
inline cudaDeviceProp* getDeviceProperties(int64_t) { return getCurrentDeviceProperties(); }
}  // namespace at::cuda
namespace torch::cuda {
inline void synchronize(int64_t = -1) { cudaDeviceSynchronize(); }
}  // namespace torch::cuda

#define C10_CUDA_CHECK(call)                                                                     \
  do {                                                                                           \
    const cudaError_t error_ = (call);                                                           \
    TORCH_CHECK(error_ == cudaSuccess, "CUDA error: ", cudaGetErrorString(error_));              \
  } while (0)
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
