// Macros and functions of c10's and ATen's headers that kernels use, for compilers that do not have these headers.
#pragma once

#define C10_WARP_SIZE 32
#define C10_DEVICE __device__
#define C10_HOST_DEVICE __host__ __device__
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define CUDA_KERNEL_ASSERT(condition)
#define CUDA_KERNEL_LOOP_TYPE(i, n, index)                                              \
  long long kernel_lsp_at = (long long)blockIdx.x * blockDim.x + threadIdx.x;           \
  for (index i = kernel_lsp_at; kernel_lsp_at < (n); kernel_lsp_at += (long long)blockDim.x * gridDim.x, i = kernel_lsp_at)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)

__device__ __forceinline__ unsigned int ACTIVE_MASK() { return __activemask(); }
__device__ __forceinline__ void WARP_SYNC(unsigned int mask = 0xffffffff) { __syncwarp(mask); }
__device__ __forceinline__ unsigned int WARP_BALLOT(int predicate, unsigned int mask = 0xffffffff) {
  return __ballot_sync(mask, predicate);
}
template <typename T>
__device__ __forceinline__ T WARP_SHFL_XOR(T value, int lanes, int width = 32, unsigned int mask = 0xffffffff) {
  return __shfl_xor_sync(mask, value, lanes, width);
}
template <typename T>
__device__ __forceinline__ T WARP_SHFL(T value, int lane, int width = 32, unsigned int mask = 0xffffffff) {
  return __shfl_sync(mask, value, lane, width);
}
template <typename T>
__device__ __forceinline__ T WARP_SHFL_UP(T value, unsigned int delta, int width = 32, unsigned int mask = 0xffffffff) {
  return __shfl_up_sync(mask, value, delta, width);
}
template <typename T>
__device__ __forceinline__ T WARP_SHFL_DOWN(T value, unsigned int delta, int width = 32, unsigned int mask = 0xffffffff) {
  return __shfl_down_sync(mask, value, delta, width);
}
template <typename T>
__device__ __forceinline__ T gpuAtomicAdd(T* address, T value) {
  return atomicAdd(address, value);
}
template <typename T>
__device__ __forceinline__ void gpuAtomicAddNoReturn(T* address, T value) {
  atomicAdd(address, value);
}
