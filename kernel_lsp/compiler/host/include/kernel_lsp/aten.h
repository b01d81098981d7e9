// Types and functions in ATen's namespace that kernels use, for compilers that do not have PyTorch's headers.
#pragma once

#include <cuda/std/limits>
#include <cuda/std/type_traits>

namespace c10 {
struct Half;
struct BFloat16;
}  // namespace c10

namespace at {
template <typename T>
using opmath_type = ::cuda::std::conditional_t<
    ::cuda::std::is_same_v<T, ::c10::Half> || ::cuda::std::is_same_v<T, ::c10::BFloat16>, float, T>;

template <typename T, bool is_cuda = true>
using acc_type = ::cuda::std::conditional_t<::cuda::std::is_same_v<T, bool> || ::cuda::std::is_same_v<T, double>, T,
                                            ::cuda::std::conditional_t<::cuda::std::is_integral_v<T>, long, float>>;

template <typename T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <typename T>
struct numeric_limits {  // as in ATen/NumericLimits.cuh: the bounds are infinite where the type has infinities
  static constexpr bool half = ::cuda::std::is_same_v<T, ::c10::Half>, brain = ::cuda::std::is_same_v<T, ::c10::BFloat16>;
  static __device__ T max() {
    if constexpr (half || brain) return T(half ? 65504.0f : 3.38953139e38f);
    else return ::cuda::std::numeric_limits<T>::max();
  }
  static __device__ T lowest() {
    if constexpr (half || brain) return T(half ? -65504.0f : -3.38953139e38f);
    else return ::cuda::std::numeric_limits<T>::lowest();
  }
  static __device__ T upper_bound() {
    if constexpr (half || brain || ::cuda::std::is_floating_point_v<T>) return T(__int_as_float(0x7f800000));
    else return max();
  }
  static __device__ T lower_bound() {
    if constexpr (half || brain || ::cuda::std::is_floating_point_v<T>) return T(-__int_as_float(0x7f800000));
    else return lowest();
  }
};
}  // namespace at
