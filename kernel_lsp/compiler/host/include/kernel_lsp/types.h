// Types of c10 that wrappers name: scalar types, devices, options, lists, numbers, and checks that throw.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>

#include "half.h"
#include "python.h"

namespace c10 {

class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& msg() const { return message_; }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }

 private:
  std::string message_;
};
struct IndexError : Error { using Error::Error; };
struct ValueError : Error { using Error::Error; };
struct TypeError : Error { using Error::Error; };
struct NotImplementedError : Error { using Error::Error; };

template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

namespace detail {
template <class Kind>
[[noreturn]] inline void fail(const char* condition, const std::string& message) {
  throw Kind(message.empty() ? str("Expected ", condition, " to be true, but got false.") : message);
}
}  // namespace detail

#define KERNEL_LSP_SCALAR_TYPES(each) \
  each(uint8_t, Byte, uint8) each(int8_t, Char, int8) each(int16_t, Short, int16) each(int, Int, int32) \
  each(int64_t, Long, int64) each(c10::Half, Half, float16) each(float, Float, float32) each(double, Double, float64) \
  each(c10::complex<float>, ComplexFloat, complex64) each(c10::complex<double>, ComplexDouble, complex128) \
  each(bool, Bool, bool) each(c10::BFloat16, BFloat16, bfloat16)

template <class T>
using complex = std::complex<T>;

enum class ScalarType : int8_t {
  Byte, Char, Short, Int, Long, Half, Float, Double, ComplexHalf, ComplexFloat, ComplexDouble, Bool, QInt8, QUInt8,
  QInt32, BFloat16, Undefined = 127
};

inline const char* python_name(ScalarType type) {
  switch (type) {
#define KERNEL_LSP_CASE(cpp, name, python) \
  case ScalarType::name:                   \
    return #python;
    KERNEL_LSP_SCALAR_TYPES(KERNEL_LSP_CASE)
#undef KERNEL_LSP_CASE
    default:
      return "undefined";
  }
}
inline const char* toString(ScalarType type) {
  switch (type) {
#define KERNEL_LSP_CASE(cpp, name, python) \
  case ScalarType::name:                   \
    return #name;
    KERNEL_LSP_SCALAR_TYPES(KERNEL_LSP_CASE)
#undef KERNEL_LSP_CASE
    default:
      return "Undefined";
  }
}
inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }
inline size_t elementSize(ScalarType type) {
  switch (type) {
#define KERNEL_LSP_CASE(cpp, name, python) \
  case ScalarType::name:                   \
    return sizeof(cpp);
    KERNEL_LSP_SCALAR_TYPES(KERNEL_LSP_CASE)
#undef KERNEL_LSP_CASE
    default:
      return 0;
  }
}
inline bool isFloatingType(ScalarType type) {
  return type == ScalarType::Double || type == ScalarType::Float || type == ScalarType::Half ||
         type == ScalarType::BFloat16;
}
inline bool isIntegralType(ScalarType type, bool with_bool) {
  return (type >= ScalarType::Byte && type <= ScalarType::Long) || (with_bool && type == ScalarType::Bool);
}

template <class T>
struct CppTypeToScalarType;
namespace impl {
template <ScalarType type>
struct ScalarTypeToCPPType;
template <ScalarType type>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<type>::type;
}  // namespace impl
#define KERNEL_LSP_CASE(cpp, name, python)                                                 \
  template <>                                                                              \
  struct CppTypeToScalarType<cpp> : std::integral_constant<ScalarType, ScalarType::name> {}; \
  template <>                                                                              \
  struct impl::ScalarTypeToCPPType<ScalarType::name> {                                     \
    using type = cpp;                                                                      \
  };                                                                                       \
  constexpr ScalarType k##name = ScalarType::name;
KERNEL_LSP_SCALAR_TYPES(KERNEL_LSP_CASE)
#undef KERNEL_LSP_CASE

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;
inline std::ostream& operator<<(std::ostream& out, DeviceType type) {
  return out << (type == DeviceType::CUDA ? "cuda" : "cpu");
}

class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}  // NOLINT: implicit as in c10
  Device(const std::string& name);  // NOLINT
  Device(const char* name) : Device(std::string(name)) {}  // NOLINT
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  bool is_cuda() const { return type_ == DeviceType::CUDA; }
  bool is_cpu() const { return type_ == DeviceType::CPU; }
  std::string str() const;
  bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const { return !(*this == other); }

 private:
  DeviceType type_ = DeviceType::CPU;
  DeviceIndex index_ = -1;
};
inline std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }

enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };
enum class Layout : int8_t { Strided };
constexpr Layout kStrided = Layout::Strided;

using std::nullopt;
using std::nullopt_t;
template <class T>
using optional = std::optional<T>;
using std::make_optional;

template <class T>
class ArrayRef {
 public:
  using value_type = T;
  ArrayRef() = default;
  ArrayRef(const T& one) : data_(&one), size_(1) {}  // NOLINT
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  ArrayRef(const T* begin, const T* end) : data_(begin), size_(end - begin) {}
  ArrayRef(const std::vector<T>& list) : data_(list.data()), size_(list.size()) {}  // NOLINT
  ArrayRef(const std::initializer_list<T>& list) : data_(list.begin()), size_(list.size()) {}  // NOLINT
  template <size_t count>
  ArrayRef(const std::array<T, count>& list) : data_(list.data()), size_(count) {}  // NOLINT
  template <size_t count>
  ArrayRef(const T (&list)[count]) : data_(list), size_(count) {}  // NOLINT
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t at) const { return data_[at]; }
  const T& at(size_t at) const {
    if (at >= size_) throw IndexError("ArrayRef: invalid index");
    return data_[at];
  }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }
  std::vector<T> vec() const { return {begin(), end()}; }
  ArrayRef slice(size_t start, size_t count) const { return {data_ + start, count}; }
  ArrayRef slice(size_t start) const { return {data_ + start, size_ - start}; }
  bool equals(ArrayRef other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T>
bool operator==(ArrayRef<T> one, ArrayRef<T> other) { return one.equals(other); }
template <class T>
bool operator==(ArrayRef<T> one, const std::vector<T>& other) { return one.equals(ArrayRef<T>(other)); }
template <class T>
bool operator==(const std::vector<T>& one, ArrayRef<T> other) { return other.equals(ArrayRef<T>(one)); }
template <class T>
bool operator!=(ArrayRef<T> one, ArrayRef<T> other) { return !one.equals(other); }
template <class T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> list) {
  out << "[";
  for (size_t at = 0; at < list.size(); ++at) out << (at ? ", " : "") << list[at];
  return out << "]";
}
using IntArrayRef = ArrayRef<int64_t>;

class Scalar {
 public:
  Scalar() : Scalar(int64_t(0)) {}
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Scalar(T value) {  // NOLINT
    if constexpr (std::is_same_v<T, bool>) kind_ = Kind::Bool, whole_ = value;
    else if constexpr (std::is_integral_v<T>) kind_ = Kind::Whole, whole_ = static_cast<int64_t>(value);
    else kind_ = Kind::Real, real_ = value;
  }
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}  // NOLINT
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}  // NOLINT
  bool isFloatingPoint() const { return kind_ == Kind::Real; }
  bool isIntegral(bool with_bool) const { return kind_ == Kind::Whole || (with_bool && kind_ == Kind::Bool); }
  bool isBoolean() const { return kind_ == Kind::Bool; }
  template <class T>
  T to() const { return kind_ == Kind::Real ? static_cast<T>(real_) : static_cast<T>(whole_); }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int64_t toLong() const { return to<int64_t>(); }
  int toInt() const { return to<int>(); }
  bool toBool() const { return to<bool>(); }

 private:
  enum class Kind : char { Bool, Whole, Real } kind_;
  int64_t whole_ = 0;
  double real_ = 0;
};

/// Options of a factory function; what is not set is torch's default.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}  // NOLINT
  TensorOptions(Device device) : device_(device) {}  // NOLINT
  TensorOptions(DeviceType device) : device_(Device(device)) {}  // NOLINT
  TensorOptions(MemoryFormat format) : format_(format) {}  // NOLINT
  TensorOptions(Layout) {}  // NOLINT
  TensorOptions dtype(ScalarType type) const { return with([&](auto& o) { o.dtype_ = type; }); }
  TensorOptions dtype(std::optional<ScalarType> type) const { return with([&](auto& o) { o.dtype_ = type; }); }
  template <class T>
  TensorOptions& dtype() { return dtype_ = CppTypeToScalarType<T>::value, *this; }
  TensorOptions device(Device device) const { return with([&](auto& o) { o.device_ = device; }); }
  TensorOptions device(std::optional<Device> device) const { return with([&](auto& o) { o.device_ = device; }); }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(Device(type, index)); }
  TensorOptions layout(Layout) const { return *this; }
  TensorOptions requires_grad(bool wanted) const { return with([&](auto& o) { o.requires_grad_ = wanted; }); }
  TensorOptions pinned_memory(bool wanted) const { return with([&](auto& o) { o.pinned_ = wanted; }); }
  TensorOptions memory_format(MemoryFormat format) const { return with([&](auto& o) { o.format_ = format; }); }
  ScalarType dtype() const { return dtype_.value_or(ScalarType::Float); }
  Device device() const { return device_.value_or(Device(kCPU)); }
  std::optional<ScalarType> dtype_opt() const { return dtype_; }
  std::optional<Device> device_opt() const { return device_; }
  std::optional<bool> requires_grad_opt() const { return requires_grad_; }
  std::optional<bool> pinned_memory_opt() const { return pinned_; }
  std::optional<MemoryFormat> memory_format_opt() const { return format_; }

 private:
  template <class Change>
  TensorOptions with(Change change) const {
    TensorOptions made = *this;
    change(made);
    return made;
  }
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  std::optional<bool> requires_grad_, pinned_;
  std::optional<MemoryFormat> format_;
};
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions device(DeviceType type, DeviceIndex index = -1) { return TensorOptions(Device(type, index)); }
inline TensorOptions requires_grad(bool wanted = true) { return TensorOptions().requires_grad(wanted); }

}  // namespace c10

namespace at {
using namespace c10;
}
namespace torch {
using namespace at;
using Dtype = at::ScalarType;
constexpr at::ScalarType kUInt8 = at::kByte, kInt8 = at::kChar, kInt16 = at::kShort, kInt32 = at::kInt,
                         kInt64 = at::kLong, kFloat16 = at::kHalf, kFloat32 = at::kFloat, kFloat64 = at::kDouble,
                         kComplex64 = at::kComplexFloat, kComplex128 = at::kComplexDouble, kU8 = at::kByte,
                         kI8 = at::kChar, kI16 = at::kShort, kI32 = at::kInt, kI64 = at::kLong, kF16 = at::kHalf,
                         kF32 = at::kFloat, kF64 = at::kDouble;
}  // namespace torch

#define TORCH_CHECK_WITH_MSG_KIND(kind, condition, ...) \
  if (__builtin_expect(!(condition), 0)) ::c10::detail::fail<kind>(#condition, ::c10::str(__VA_ARGS__))
#define TORCH_CHECK(condition, ...) TORCH_CHECK_WITH_MSG_KIND(::c10::Error, condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(condition, ...) while (false) TORCH_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) TORCH_CHECK_WITH_MSG_KIND(::c10::IndexError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) TORCH_CHECK_WITH_MSG_KIND(::c10::ValueError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) TORCH_CHECK_WITH_MSG_KIND(::c10::TypeError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  TORCH_CHECK_WITH_MSG_KIND(::c10::NotImplementedError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK((a) == (b), "Check failed: " #a " == " #b " (", a, " vs. ", b, "). ")
#define TORCH_CHECK_NE(a, b) TORCH_CHECK((a) != (b), "Check failed: " #a " != " #b " (", a, " vs. ", b, "). ")
#define TORCH_CHECK_LT(a, b) TORCH_CHECK((a) < (b), "Check failed: " #a " < " #b " (", a, " vs. ", b, "). ")
#define TORCH_CHECK_LE(a, b) TORCH_CHECK((a) <= (b), "Check failed: " #a " <= " #b " (", a, " vs. ", b, "). ")
#define TORCH_CHECK_GT(a, b) TORCH_CHECK((a) > (b), "Check failed: " #a " > " #b " (", a, " vs. ", b, "). ")
#define TORCH_CHECK_GE(a, b) TORCH_CHECK((a) >= (b), "Check failed: " #a " >= " #b " (", a, " vs. ", b, "). ")
#define TORCH_WARN(...) (std::cerr << "Warning: " << ::c10::str(__VA_ARGS__) << std::endl)
#define AT_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ERROR(...) throw ::c10::Error(::c10::str(__VA_ARGS__))
