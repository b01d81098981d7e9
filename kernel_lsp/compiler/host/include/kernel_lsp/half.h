// c10::Half and c10::BFloat16, for the host compiler and for CUDA's alike; laid out as __half and __nv_bfloat16.
#pragma once

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define KERNEL_LSP_BOTH __host__ __device__ __forceinline__
#else
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#define KERNEL_LSP_BOTH inline
#endif

namespace c10 {
namespace detail {
#ifdef __CUDACC__
KERNEL_LSP_BOTH float half_to_float(unsigned short bits) { return __half2float(__ushort_as_half(bits)); }
KERNEL_LSP_BOTH unsigned short float_to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
KERNEL_LSP_BOTH float word_as_float(unsigned int bits) { return __uint_as_float(bits); }
KERNEL_LSP_BOTH unsigned int float_as_word(float value) { return __float_as_uint(value); }
#else
inline float word_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t float_as_word(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float half_to_float(unsigned short bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3FF;
  if (exponent == 31) return word_as_float(sign | 0x7F800000 | mantissa << 13);
  if (exponent != 0) return word_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -small : small;
}
inline unsigned short float_to_half(float value) {  // to nearest, ties to even
  const uint32_t bits = float_as_word(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<unsigned short>(sign | 0x7E00);
  if (magnitude >= 0x477FF000) return static_cast<unsigned short>(sign | 0x7C00);
  if (magnitude < 0x38800000) {  // adding one half unit of the last subnormal place rounds as the hardware does
    const float shifted = word_as_float(magnitude) + 0.5f;
    return static_cast<unsigned short>(sign | (float_as_word(shifted) - 0x3F000000));
  }
  const uint32_t rounded = magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<unsigned short>(sign | rounded >> 13);
}
#endif
KERNEL_LSP_BOTH float bfloat16_to_float(unsigned short bits) { return word_as_float((unsigned int)(bits) << 16); }
KERNEL_LSP_BOTH unsigned short float_to_bfloat16(float value) {
  const unsigned int bits = float_as_word(value);
  return (bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : (unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
}  // namespace detail

struct alignas(2) Half {
  unsigned short x;
  struct from_bits_t {};
  static constexpr KERNEL_LSP_BOTH from_bits_t from_bits() { return from_bits_t(); }
  Half() = default;
  constexpr KERNEL_LSP_BOTH Half(unsigned short bits, from_bits_t) : x(bits) {}
  KERNEL_LSP_BOTH Half(float value) : x(detail::float_to_half(value)) {}
  KERNEL_LSP_BOTH operator float() const { return detail::half_to_float(x); }
#ifdef __CUDACC__
  KERNEL_LSP_BOTH Half(const __half& value) : x(__half_as_ushort(value)) {}
  KERNEL_LSP_BOTH operator __half() const { return __ushort_as_half(x); }
#endif
};
struct alignas(2) BFloat16 {
  unsigned short x;
  struct from_bits_t {};
  static constexpr KERNEL_LSP_BOTH from_bits_t from_bits() { return from_bits_t(); }
  BFloat16() = default;
  constexpr KERNEL_LSP_BOTH BFloat16(unsigned short bits, from_bits_t) : x(bits) {}
  KERNEL_LSP_BOTH BFloat16(float value) : x(detail::float_to_bfloat16(value)) {}
  KERNEL_LSP_BOTH operator float() const { return detail::bfloat16_to_float(x); }
#ifdef __CUDACC__
  KERNEL_LSP_BOTH BFloat16(const __nv_bfloat16& value) : x(__bfloat16_as_ushort(value)) {}
  KERNEL_LSP_BOTH explicit operator __nv_bfloat16() const { return __ushort_as_bfloat16(x); }
#endif
};

#define KERNEL_LSP_OPERATOR(type, op)                                                                         \
  KERNEL_LSP_BOTH type operator op(const type& a, const type& b) { return float(a) op float(b); }             \
  KERNEL_LSP_BOTH float operator op(type a, float b) { return float(a) op b; }                                \
  KERNEL_LSP_BOTH float operator op(float a, type b) { return a op float(b); }                                \
  KERNEL_LSP_BOTH double operator op(type a, double b) { return float(a) op b; }                              \
  KERNEL_LSP_BOTH double operator op(double a, type b) { return a op float(b); }                              \
  KERNEL_LSP_BOTH type operator op(type a, int b) { return a op type(float(b)); }                             \
  KERNEL_LSP_BOTH type operator op(int a, type b) { return type(float(a)) op b; }                             \
  KERNEL_LSP_BOTH type operator op(type a, long b) { return a op type(float(b)); }                            \
  KERNEL_LSP_BOTH type operator op(long a, type b) { return type(float(a)) op b; }                            \
  KERNEL_LSP_BOTH type& operator op##=(type& a, const type& b) { return a = a op b; }                         \
  KERNEL_LSP_BOTH float& operator op##=(float& a, const type& b) { return a = a op float(b); }                \
  KERNEL_LSP_BOTH type& operator op##=(type& a, float b) { return a = type(float(a) op b); }
#define KERNEL_LSP_OPERATORS(type)                                                \
  KERNEL_LSP_OPERATOR(type, +)                                                    \
  KERNEL_LSP_OPERATOR(type, -)                                                    \
  KERNEL_LSP_OPERATOR(type, *)                                                    \
  KERNEL_LSP_OPERATOR(type, /)                                                    \
  KERNEL_LSP_BOTH type operator-(const type& a) { return -float(a); }             \
  KERNEL_LSP_BOTH bool operator<(const type& a, const type& b) { return float(a) < float(b); } \
  KERNEL_LSP_BOTH bool operator>(const type& a, const type& b) { return float(a) > float(b); }
KERNEL_LSP_OPERATORS(Half)
KERNEL_LSP_OPERATORS(BFloat16)
#if defined(__CUDACC__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)  // which `gpuAtomicAdd` looks for
__device__ __forceinline__ Half atomicAdd(Half* address, Half value) {
  return ::atomicAdd(reinterpret_cast<__half*>(address), __half(value));
}
__device__ __forceinline__ BFloat16 atomicAdd(BFloat16* address, BFloat16 value) {
  return ::atomicAdd(reinterpret_cast<__nv_bfloat16*>(address), static_cast<__nv_bfloat16>(value));
}
#endif
#undef KERNEL_LSP_OPERATORS
#undef KERNEL_LSP_OPERATOR
#ifndef __CUDACC__
inline std::ostream& operator<<(std::ostream& out, const Half& value) { return out << float(value); }
inline std::ostream& operator<<(std::ostream& out, const BFloat16& value) { return out << float(value); }
#endif
}  // namespace c10
namespace at {
using c10::BFloat16;
using c10::Half;
}  // namespace at
namespace torch {
using c10::BFloat16;
using c10::Half;
}  // namespace torch
