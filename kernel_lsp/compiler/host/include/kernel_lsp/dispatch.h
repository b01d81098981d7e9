// AT_DISPATCH: one instance of a lambda for each type of elements, the right one being called.
#pragma once

#include "tensor.h"

namespace detail {
inline at::ScalarType scalar_type(at::ScalarType type) { return type; }
}  // namespace detail

#define AT_DISPATCH_CASE(enum_type, ...)                                                  \
  case enum_type: {                                                                       \
    using scalar_t [[maybe_unused]] = c10::impl::ScalarTypeToCPPTypeT<enum_type>;         \
    return __VA_ARGS__();                                                                 \
  }
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                                   \
  [&] {                                                                                                       \
    const auto& the_type = TYPE;                                                                              \
    const at::ScalarType _st = ::detail::scalar_type(the_type);                                               \
    switch (_st) {                                                                                            \
      __VA_ARGS__                                                                                             \
      default:                                                                                                \
        TORCH_CHECK_NOT_IMPLEMENTED(false, '"', NAME, "\" not implemented for '", at::toString(_st), "'");    \
        __builtin_unreachable();                                                                              \
    }                                                                                                         \
  }()
#define KERNEL_LSP_CASE(type, ...) AT_DISPATCH_CASE(at::ScalarType::type, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES(...) \
  KERNEL_LSP_CASE(Double, __VA_ARGS__) KERNEL_LSP_CASE(Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)                                                          \
  KERNEL_LSP_CASE(Byte, __VA_ARGS__) KERNEL_LSP_CASE(Char, __VA_ARGS__) KERNEL_LSP_CASE(Int, __VA_ARGS__) \
  KERNEL_LSP_CASE(Long, __VA_ARGS__) KERNEL_LSP_CASE(Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...) \
  AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF(...) \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) KERNEL_LSP_CASE(Half, __VA_ARGS__)
#define AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(...) \
  KERNEL_LSP_CASE(Half, __VA_ARGS__) KERNEL_LSP_CASE(BFloat16, __VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF(__VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(ONE, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(ONE, TWO, TYPE, NAME, ...)                                          \
  AT_DISPATCH_SWITCH(                                                                                       \
      TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__)           \
                      AT_DISPATCH_CASE(TWO, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(ONE, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(ONE, TWO, TYPE, NAME, ...)                                               \
  AT_DISPATCH_SWITCH(                                                                                       \
      TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__)                \
                      AT_DISPATCH_CASE(TWO, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND3(ONE, TWO, THREE, TYPE, NAME, ...)                                        \
  AT_DISPATCH_SWITCH(                                                                                       \
      TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__)                \
                      AT_DISPATCH_CASE(TWO, __VA_ARGS__) AT_DISPATCH_CASE(THREE, __VA_ARGS__))
#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                                                            \
  AT_DISPATCH_SWITCH(TYPE, NAME, case at::kInt: {                                                           \
    using index_t [[maybe_unused]] = int32_t;                                                               \
    return __VA_ARGS__();                                                                                   \
  } case at::kLong: {                                                                                       \
    using index_t [[maybe_unused]] = int64_t;                                                               \
    return __VA_ARGS__();                                                                                   \
  })
