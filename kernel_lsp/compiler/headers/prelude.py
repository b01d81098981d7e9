"""Replacements for host headers that code written for nvcc expects, cheap enough for NVRTC (a few milliseconds).

NVRTC has no host headers. If CCCL's headers are installed, the integer types and limits come from them, because CCCL
rejects second definitions. `PRELUDE` is included before every file; `HOST_HEADERS` replace headers by name.
"""

from pathlib import Path

PRELUDE_NAME = "kernel_lsp_prelude.h"
HALF_HEADER = "kernel_lsp_half.h"
"""PyTorch's 16-bit float types, included for kernels that name them."""
DEVICE_HEADER = "kernel_lsp_device.h"
"""PyTorch's macros and functions for device code, for kernels that use one and define none themselves."""
ATEN_HEADER = "kernel_lsp_aten.h"
"""What ATen's namespace has for device code."""
ACCESSOR_HEADER = "kernel_lsp_accessor.h"
"""PyTorch's accessors of tensors and its checks, for facts alone."""
_FOLDER = Path(__file__).parents[1] / "host/include/kernel_lsp"
OWN_FILES = {
    name: _FOLDER / name.removeprefix("kernel_lsp_")
    for name in (HALF_HEADER, DEVICE_HEADER, ATEN_HEADER, ACCESSOR_HEADER)
}

_MACROS = {
    "FLT_MAX": "3.402823466e+38f",
    "FLT_MIN": "1.175494351e-38f",
    "FLT_EPSILON": "1.192092896e-07f",
    "DBL_MAX": "1.7976931348623158e+308",
    "DBL_MIN": "2.2250738585072014e-308",
    "DBL_EPSILON": "2.2204460492503131e-016",
    "CHAR_BIT": "8",
    "SCHAR_MAX": "127",
    "SCHAR_MIN": "(-128)",
    "UCHAR_MAX": "255",
    "SHRT_MAX": "32767",
    "SHRT_MIN": "(-32768)",
    "USHRT_MAX": "65535",
    "INT_MAX": "2147483647",
    "INT_MIN": "(-INT_MAX - 1)",
    "UINT_MAX": "4294967295U",
    "LONG_MAX": "9223372036854775807L",
    "LONG_MIN": "(-LONG_MAX - 1L)",
    "ULONG_MAX": "18446744073709551615UL",
    "LLONG_MAX": "9223372036854775807LL",
    "LLONG_MIN": "(-LLONG_MAX - 1LL)",
    "ULLONG_MAX": "18446744073709551615ULL",
    "INT8_MAX": "127",
    "INT8_MIN": "(-128)",
    "UINT8_MAX": "255",
    "INT16_MAX": "32767",
    "INT16_MIN": "(-32768)",
    "UINT16_MAX": "65535",
    "INT32_MAX": "INT_MAX",
    "INT32_MIN": "INT_MIN",
    "UINT32_MAX": "UINT_MAX",
    "INT64_MAX": "LONG_MAX",
    "INT64_MIN": "LONG_MIN",
    "UINT64_MAX": "ULONG_MAX",
    "SIZE_MAX": "ULONG_MAX",
    "INFINITY": "__int_as_float(0x7f800000)",
    "NAN": "__int_as_float(0x7fffffff)",
    "HUGE_VALF": "INFINITY",
    "HUGE_VAL": "__longlong_as_double(0x7ff0000000000000LL)",
    "M_E": "2.71828182845904523536",
    "M_LOG2E": "1.44269504088896340736",
    "M_LOG10E": "0.43429448190325182765",
    "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402",
    "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923",
    "M_PI_4": "0.78539816339744830962",
    "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308",
    "M_2_SQRTPI": "1.12837916709551257390",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
}

PRELUDE = r"""#pragma once
#define __extension__  // a word of GNU's, before anonymous unions and literals
#define __asm__ asm
#ifndef CUDA_VERSION  // which nvcc has of `cuda.h`, and code tests
#define CUDA_VERSION (__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10)
#endif
#if __has_include(<cuda/std/cstdint>)
#include <cuda/std/cfloat>
#include <cuda/std/climits>
#include <cuda/std/cstdint>
#else  // the types that those declare, to the letter: some atomics exist for `long long` alone
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;
#endif
typedef long ptrdiff_t;
typedef long ssize_t;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
namespace std {
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t;
using ::int32_t; using ::uint32_t; using ::int64_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t; using ::size_t; using ::ptrdiff_t;
}
""" + "".join(f"#ifndef {name}\n#define {name} {value}\n#endif\n" for name, value in _MACROS.items())

MATH_FUNCTIONS = (
    "abs", "fabs", "fmod", "fma", "fmax", "fmin", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow",
    "sqrt", "cbrt", "hypot", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "erf", "erfc", "tgamma", "lgamma", "ceil", "floor", "trunc", "round", "rint", "isnan",
    "isinf", "isfinite", "signbit", "copysign",
)  # fmt: skip
"""Those of CUDA's own functions that `<cmath>` has in `std`."""

_MATH = f"#pragma once\nnamespace std {{\n{' '.join(f'using ::{name};' for name in MATH_FUNCTIONS)}\n}}\n"

_ALGORITHM = r"""#pragma once
namespace std {
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> __host__ __device__ constexpr const T& clamp(const T& value, const T& low, const T& high) {
    return value < low ? low : high < value ? high : value;
}
}
"""


def _from_cuda_std(header: str) -> str:
    return f"#pragma once\n#include <cuda/std/{header}>\nnamespace std {{ using namespace ::cuda::std; }}\n"


_DECLARED_BY_THE_PRELUDE = (
    "cfloat", "climits", "cstddef", "cstdint", "cuda_runtime.h", "cuda_runtime_api.h", "device_functions.h",
    "device_launch_parameters.h", "float.h", "limits.h", "math_functions.h", "stddef.h", "stdint.h",
)  # fmt: skip
_FOR_HOST_CODE = (
    "ATen/ATen.h", "ATen/cuda/CUDAContext.h", "assert.h", "c10/cuda/CUDAException.h", "c10/cuda/CUDAGuard.h",
    "c10/cuda/CUDAStream.h", "c10/util/Exception.h", "cassert", "chrono", "cstdio", "cstdlib", "cstring",
    "iomanip", "iostream", "map", "memory", "numeric", "pybind11/pybind11.h", "random", "sstream",
    "stdexcept", "stdio.h", "stdlib.h", "string", "string.h", "torch/all.h", "torch/extension.h", "torch/torch.h",
    "torch/types.h", "unordered_map", "vector",
)  # fmt: skip
_IN_CUDA_STD = (
    "array",
    "bit",
    "concepts",
    "functional",
    "initializer_list",
    "limits",
    "tuple",
    "type_traits",
    "utility",
)

HOST_HEADERS: dict[str, str] = (
    dict.fromkeys((*_DECLARED_BY_THE_PRELUDE, *_FOR_HOST_CODE), "")
    | dict.fromkeys(("math.h", "cmath"), _MATH)
    | {"algorithm": _ALGORITHM}
    | {name: _from_cuda_std(name) for name in _IN_CUDA_STD}
    | {name: path.read_text(encoding="utf-8") for name, path in OWN_FILES.items()}
)
