// Tensors: handles of Python's own, so that every operation is torch's, seen and answered by whoever watches torch.
#pragma once

#include "types.h"

namespace at {
class Tensor;
using TensorList = c10::ArrayRef<Tensor>;
}  // namespace at

namespace kernel_lsp {

/// A tensor of Python's and what was asked of it so far.
struct TensorState {
  Ref object;
  std::vector<int64_t> sizes, strides;
  c10::ScalarType type = c10::ScalarType::Undefined;
  void* pointer = nullptr;
  bool shaped = false, typed = false, placed = false;

  void forget() { shaped = typed = placed = false; }
};

c10::ScalarType scalar_type_of(PyObject* dtype);
std::vector<int64_t> numbers_of(PyObject* sequence);

}  // namespace kernel_lsp

namespace kernel_lsp {
template <class... Given>
at::Tensor method(const char* name, const at::Tensor& self, const Given&... given);
template <class... Given>
at::Tensor function(const char* name, const Given&... given);
Ref to_python(const at::Tensor& tensor);
}  // namespace kernel_lsp

namespace at {

using OptionalIntArrayRef = std::optional<std::vector<int64_t>>;

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(kernel_lsp::Ref object) : state_(std::make_shared<kernel_lsp::TensorState>()) {
    state_->object = std::move(object);
  }

  bool defined() const { return state_ != nullptr; }
  void reset() { state_.reset(); }
  bool is_same(const Tensor& other) const { return defined() && other.defined() && object() == other.object(); }
  PyObject* object() const;

  IntArrayRef sizes() const { return shape().sizes; }
  IntArrayRef strides() const { return shape().strides; }
  int64_t dim() const { return static_cast<int64_t>(shape().sizes.size()); }
  int64_t ndimension() const { return dim(); }
  int64_t size(int64_t dim) const { return shape().sizes[wrapped(dim)]; }
  int64_t stride(int64_t dim) const { return shape().strides[wrapped(dim)]; }
  int64_t numel() const;
  bool sizes_equal(const Tensor& other) const { return sizes() == other.sizes(); }
  ScalarType scalar_type() const;
  ScalarType dtype() const { return scalar_type(); }
  size_t element_size() const { return c10::elementSize(scalar_type()); }
  size_t itemsize() const { return element_size(); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * element_size(); }
  int64_t storage_offset() const { return number("storage_offset"); }
  bool is_floating_point() const { return c10::isFloatingType(scalar_type()); }
  bool is_cuda() const { return flag("is_cuda"); }
  bool is_cpu() const { return !is_cuda(); }
  bool is_sparse() const { return flag("is_sparse"); }
  bool requires_grad() const { return flag("requires_grad"); }
  bool is_contiguous() const;
  bool is_contiguous(MemoryFormat format) const;
  bool is_non_overlapping_and_dense() const;
  Device device() const;
  int64_t get_device() const { return number("get_device"); }
  TensorOptions options() const;

  void* data_ptr() const;
  void* mutable_data_ptr() const { return data_ptr(); }
  const void* const_data_ptr() const { return data_ptr(); }
  template <class T>
  T* data_ptr() const {
    constexpr ScalarType wanted = c10::CppTypeToScalarType<std::remove_const_t<T>>::value;
    TORCH_CHECK(
        scalar_type() == wanted, "expected scalar type ", toString(wanted), " but found ", toString(scalar_type()));
    return static_cast<T*>(data_ptr());
  }
  template <class T>
  T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  const std::remove_const_t<T>* const_data_ptr() const { return data_ptr<std::remove_const_t<T>>(); }
  template <class T>
  T* data() const { return data_ptr<T>(); }

  Scalar item() const;
  template <class T>
  T item() const { return item().to<T>(); }
  Tensor operator[](int64_t at) const { return select(0, at); }

#define KERNEL_LSP_METHOD(name)                  \
  template <class... Given>                      \
  Tensor name(const Given&... given) const {     \
    return kernel_lsp::method(#name, *this, given...); \
  }
#define KERNEL_LSP_LIST_METHOD(name)                                  \
  template <class... Given>                                           \
  Tensor name(IntArrayRef list, const Given&... given) const {        \
    return kernel_lsp::method(#name, *this, list, given...);          \
  }
// Torch takes one dimension, a list of them or none.
#define KERNEL_LSP_REDUCTION(name) KERNEL_LSP_METHOD(name) KERNEL_LSP_LIST_METHOD(name)
#define KERNEL_LSP_IN_PLACE(name)                \
  template <class... Given>                      \
  const Tensor& name(const Given&... given) const { \
    kernel_lsp::method(#name, *this, given...);  \
    return *this;                                \
  }
#define KERNEL_LSP_UNARY(each)                                                                              \
  each(abs) each(acos) each(asin) each(atan) each(ceil) each(clone) each(cos) each(cosh) each(detach) each(erf)  \
  each(exp) each(expm1) each(floor) each(isfinite) each(isinf) each(isnan) each(log) each(log10) each(log1p)     \
  each(log2) each(logical_not) each(neg) each(reciprocal) each(relu) each(round) each(rsqrt) each(sigmoid)       \
  each(sign) each(sin) each(sinh) each(sqrt) each(square) each(t) each(tan) each(tanh) each(trunc)
#define KERNEL_LSP_BINARY(each)                                                                             \
  each(add) each(bmm) each(clamp) each(clamp_max) each(clamp_min) each(div) each(dot) each(eq) each(ge) each(gt) \
  each(le) each(lt) each(matmul) each(maximum) each(minimum) each(mm) each(mul) each(mv) each(ne) each(pow)      \
  each(sub) each(addmm) each(baddbmm) each(where) each(masked_fill) each(gather) each(index_select)             \
  each(softmax) each(log_softmax) each(cumsum) each(cumprod) each(argmax) each(argmin) each(narrow)         \
  each(select) each(unsqueeze) each(transpose) each(flatten) each(triu) each(tril) each(repeat_interleave)
#define KERNEL_LSP_ANY_NUMBER(each) \
  each(sum) each(mean) each(amax) each(amin) each(squeeze) each(any) each(all) each(prod) each(norm)
#define KERNEL_LSP_LISTS(each) \
  each(view) each(reshape) each(permute) each(expand) each(repeat) each(flip) each(new_empty) each(new_zeros) \
  each(new_ones)
  KERNEL_LSP_UNARY(KERNEL_LSP_METHOD)
  KERNEL_LSP_BINARY(KERNEL_LSP_METHOD)
  KERNEL_LSP_ANY_NUMBER(KERNEL_LSP_REDUCTION)
  KERNEL_LSP_LISTS(KERNEL_LSP_LIST_METHOD)
  KERNEL_LSP_METHOD(contiguous)
  KERNEL_LSP_METHOD(to)
  KERNEL_LSP_METHOD(cpu)
  KERNEL_LSP_METHOD(cuda)
  KERNEL_LSP_METHOD(view_as)
  KERNEL_LSP_METHOD(reshape_as)
  KERNEL_LSP_METHOD(expand_as)
  KERNEL_LSP_METHOD(new_full)
  KERNEL_LSP_METHOD(type_as)
  Tensor max() const { return kernel_lsp::method("max", *this); }
  Tensor min() const { return kernel_lsp::method("min", *this); }
  Tensor max(const Tensor& other) const { return kernel_lsp::method("max", *this, other); }
  Tensor min(const Tensor& other) const { return kernel_lsp::method("min", *this, other); }
  std::tuple<Tensor, Tensor> max(int64_t dim, bool keepdim = false) const;
  std::tuple<Tensor, Tensor> min(int64_t dim, bool keepdim = false) const;
  Tensor as_strided(IntArrayRef size, IntArrayRef stride) const {
    return kernel_lsp::method("as_strided", *this, size, stride);
  }
  KERNEL_LSP_IN_PLACE(zero_)
  KERNEL_LSP_IN_PLACE(fill_)
  KERNEL_LSP_IN_PLACE(copy_)
  KERNEL_LSP_IN_PLACE(add_)
  KERNEL_LSP_IN_PLACE(sub_)
  KERNEL_LSP_IN_PLACE(mul_)
  KERNEL_LSP_IN_PLACE(div_)
  KERNEL_LSP_IN_PLACE(relu_)
  KERNEL_LSP_IN_PLACE(clamp_)
  KERNEL_LSP_IN_PLACE(sqrt_)
  KERNEL_LSP_IN_PLACE(exp_)
  KERNEL_LSP_IN_PLACE(neg_)
  Tensor to(TensorOptions options) const;
  Tensor toType(ScalarType type) const { return to(type); }
  const Tensor& operator+=(const Tensor& other) const { return add_(other); }
  const Tensor& operator-=(const Tensor& other) const { return sub_(other); }
  const Tensor& operator*=(const Tensor& other) const { return mul_(other); }
  const Tensor& operator/=(const Tensor& other) const { return div_(other); }
  const Tensor& operator+=(Scalar other) const { return add_(other); }
  const Tensor& operator-=(Scalar other) const { return sub_(other); }
  const Tensor& operator*=(Scalar other) const { return mul_(other); }
  const Tensor& operator/=(Scalar other) const { return div_(other); }
  Tensor operator-() const { return neg(); }

 private:
  kernel_lsp::TensorState& shape() const;
  size_t wrapped(int64_t dim) const;
  kernel_lsp::Ref ask(const char* name) const;
  int64_t number(const char* name) const;
  bool flag(const char* name) const;

  std::shared_ptr<kernel_lsp::TensorState> state_;
};

}  // namespace at

namespace kernel_lsp {

inline Ref to_python(bool value) { return Ref::steal(PyBool_FromLong(value)); }
inline Ref to_python(double value) { return Ref::steal(PyFloat_FromDouble(value)); }
inline Ref to_python(const std::string& value) {
  return checked(PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size())));
}
inline Ref to_python(const char* value) { return to_python(std::string(value)); }
template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
Ref to_python(T value) {
  if constexpr (std::is_unsigned_v<T>) return checked(PyLong_FromUnsignedLongLong(value));
  return checked(PyLong_FromLongLong(static_cast<long long>(value)));
}
inline Ref to_python(float value) { return to_python(static_cast<double>(value)); }
inline Ref to_python(c10::Half value) { return to_python(static_cast<double>(float(value))); }
inline Ref to_python(c10::BFloat16 value) { return to_python(static_cast<double>(float(value))); }
inline Ref to_python(std::nullopt_t) { return none(); }
inline Ref to_python(c10::ScalarType type) { return torch_attribute(c10::python_name(type)); }
inline Ref to_python(const c10::Device& device) { return to_python(device.str()); }
inline Ref to_python(c10::DeviceType type) { return to_python(c10::Device(type)); }
Ref to_python(c10::MemoryFormat format);
Ref to_python(const c10::Scalar& value);
inline Ref to_python(const at::Tensor& tensor) { return tensor.defined() ? Ref::borrow(tensor.object()) : none(); }
template <class T>
Ref to_python(const std::optional<T>& value);
template <class T>
Ref to_python(const std::vector<T>& list);
template <class T>
Ref to_python(c10::ArrayRef<T> list) {
  Ref made = checked(PyList_New(static_cast<Py_ssize_t>(list.size())));
  for (size_t at = 0; at < list.size(); ++at)
    PyList_SetItem(made.get(), static_cast<Py_ssize_t>(at), to_python(list[at]).release());
  return made;
}
Ref to_python(const std::vector<bool>& list);
template <class T>
Ref to_python(const std::vector<T>& list) { return to_python(c10::ArrayRef<T>(list)); }
template <class T, size_t count>
Ref to_python(const std::array<T, count>& list) { return to_python(c10::ArrayRef<T>(list)); }
template <class T>
Ref to_python(const std::optional<T>& value) { return value ? to_python(*value) : none(); }
template <class... T>
Ref to_python(const std::tuple<T...>& values) {
  Ref made = checked(PyTuple_New(sizeof...(T)));
  std::apply(
      [&](const auto&... value) {
        Py_ssize_t at = 0;
        (PyTuple_SetItem(made.get(), at++, to_python(value).release()), ...);
      },
      values);
  return made;
}
template <class A, class B>
Ref to_python(const std::pair<A, B>& values) { return to_python(std::tuple<A, B>(values.first, values.second)); }

/// Arguments of a call of Python's; options and memory formats go by name.
class Arguments {
 public:
  template <class T>
  void add(const T& value) {
    if constexpr (std::is_same_v<T, c10::MemoryFormat>) name("memory_format", to_python(value));
    else if constexpr (!std::is_same_v<T, c10::TensorOptions>) positional_.push_back(to_python(value));
    else add_options(value);
  }
  void add_options(const c10::TensorOptions& options);
  void name(const char* key, const Ref& value);
  Ref call(const Ref& callee);

 private:
  std::vector<Ref> positional_;
  Ref named_;
};

template <class... Given>
Ref call(const Ref& callee, const Given&... given) {
  Arguments arguments;
  (arguments.add(given), ...);
  return arguments.call(callee);
}
template <class... Given>
at::Tensor method(const char* name, const at::Tensor& self, const Given&... given) {
  return at::Tensor(call(attribute(self.object(), name), given...));
}
template <class... Given>
at::Tensor function(const char* name, const Given&... given) {
  return at::Tensor(call(torch_attribute(name), given...));
}

}  // namespace kernel_lsp

namespace at {





#define KERNEL_LSP_FACTORY(name)                                                           \
  inline Tensor name(IntArrayRef size, TensorOptions options = {}) {                       \
    return kernel_lsp::function(#name, size, options);                                     \
  }                                                                                        \
  inline Tensor name(IntArrayRef size, TensorOptions options, MemoryFormat format) {       \
    return kernel_lsp::function(#name, size, options, format);                             \
  }
KERNEL_LSP_FACTORY(empty)
KERNEL_LSP_FACTORY(zeros)
KERNEL_LSP_FACTORY(ones)
KERNEL_LSP_FACTORY(rand)
KERNEL_LSP_FACTORY(randn)
inline Tensor empty_strided(IntArrayRef size, IntArrayRef stride, TensorOptions options = {}) {
  return kernel_lsp::function("empty_strided", size, stride, options);
}
inline Tensor full(IntArrayRef size, Scalar value, TensorOptions options = {}) {
  return kernel_lsp::function("full", size, value, options);
}
#define KERNEL_LSP_LIKE(name)                                                              \
  inline Tensor name(const Tensor& like, TensorOptions options = {}) {                     \
    return kernel_lsp::function(#name, like, options);                                     \
  }                                                                                        \
  inline Tensor name(const Tensor& like, TensorOptions options, MemoryFormat format) {     \
    return kernel_lsp::function(#name, like, options, format);                             \
  }
KERNEL_LSP_LIKE(empty_like)
KERNEL_LSP_LIKE(zeros_like)
KERNEL_LSP_LIKE(ones_like)
inline Tensor full_like(const Tensor& like, Scalar value, TensorOptions options = {}) {
  return kernel_lsp::function("full_like", like, value, options);
}
inline Tensor arange(Scalar end, TensorOptions options = {}) { return kernel_lsp::function("arange", end, options); }
inline Tensor arange(Scalar start, Scalar end, TensorOptions options = {}) {
  return kernel_lsp::function("arange", start, end, options);
}
inline Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options = {}) {
  return kernel_lsp::function("arange", start, end, step, options);
}
inline Tensor cat(TensorList list, int64_t dim = 0) { return kernel_lsp::function("cat", list, dim); }
inline Tensor stack(TensorList list, int64_t dim = 0) { return kernel_lsp::function("stack", list, dim); }
#define KERNEL_LSP_FUNCTION(name)                                        \
  template <class... Given>                                              \
  Tensor name(const Tensor& first, const Given&... given) {              \
    return kernel_lsp::function(#name, first, given...);                 \
  }
#define KERNEL_LSP_LIST_FUNCTION(name)                                                   \
  template <class... Given>                                                              \
  Tensor name(const Tensor& first, IntArrayRef list, const Given&... given) {            \
    return kernel_lsp::function(#name, first, list, given...);                           \
  }
#define KERNEL_LSP_REDUCING(name) KERNEL_LSP_FUNCTION(name) KERNEL_LSP_LIST_FUNCTION(name)
KERNEL_LSP_UNARY(KERNEL_LSP_FUNCTION)
KERNEL_LSP_BINARY(KERNEL_LSP_FUNCTION)
KERNEL_LSP_REDUCING(sum)
KERNEL_LSP_REDUCING(mean)
KERNEL_LSP_REDUCING(amax)
KERNEL_LSP_REDUCING(amin)
KERNEL_LSP_FUNCTION(prod)
std::tuple<Tensor, Tensor> two_of(const kernel_lsp::Ref& given);
#define KERNEL_LSP_EXTREME(name)                                                                \
  inline std::tuple<Tensor, Tensor> Tensor::name(int64_t dim, bool keepdim) const {             \
    return two_of(kernel_lsp::call(kernel_lsp::attribute(object(), #name), dim, keepdim));      \
  }                                                                                             \
  inline Tensor name(const Tensor& self) { return self.name(); }                                \
  inline Tensor name(const Tensor& self, const Tensor& other) { return self.name(other); }      \
  inline std::tuple<Tensor, Tensor> name(const Tensor& self, int64_t dim, bool keepdim = false) { \
    return self.name(dim, keepdim);                                                             \
  }
KERNEL_LSP_EXTREME(max)
KERNEL_LSP_EXTREME(min)

#define KERNEL_LSP_OPERATOR(op, name)                                                                        \
  inline Tensor operator op(const Tensor& a, const Tensor& b) { return kernel_lsp::function(#name, a, b); }  \
  inline Tensor operator op(const Tensor& a, Scalar b) { return kernel_lsp::function(#name, a, b); }
KERNEL_LSP_OPERATOR(+, add)
KERNEL_LSP_OPERATOR(-, sub)
KERNEL_LSP_OPERATOR(*, mul)
KERNEL_LSP_OPERATOR(/, div)
KERNEL_LSP_OPERATOR(<, lt)
KERNEL_LSP_OPERATOR(>, gt)
KERNEL_LSP_OPERATOR(<=, le)
KERNEL_LSP_OPERATOR(>=, ge)
KERNEL_LSP_OPERATOR(==, eq)
KERNEL_LSP_OPERATOR(!=, ne)
#undef KERNEL_LSP_OPERATOR
inline Tensor operator+(Scalar a, const Tensor& b) { return b + a; }
inline Tensor operator*(Scalar a, const Tensor& b) { return b * a; }
inline Tensor operator-(Scalar a, const Tensor& b) { return kernel_lsp::function("rsub", b, a); }
inline Tensor operator/(Scalar a, const Tensor& b) { return b.reciprocal() * a; }

}  // namespace at

namespace torch {
using at::IntArrayRef;
using at::Tensor;
using at::TensorList;
// Nothing under judgement records gradients.
struct NoGradGuard {};
struct InferenceMode {
  explicit InferenceMode(bool = true) {}
};
}  // namespace torch
namespace at {
using NoGradGuard = torch::NoGradGuard;
using AutoDispatchBelowADInplaceOrView = torch::NoGradGuard;
using AutoDispatchBelowAutograd = torch::NoGradGuard;
}  // namespace at
namespace c10 {
using InferenceMode = torch::InferenceMode;
}
