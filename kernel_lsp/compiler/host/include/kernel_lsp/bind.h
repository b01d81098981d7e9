// What pybind11 does for wrappers: functions by name, callable from Python, with its rules for arguments.
#pragma once

#include "dispatch.h"

namespace kernel_lsp {

/// Conversion of one parameter: `Held` is kept while the function runs, and `load` says whether an object will do.
template <class T>
struct Caster;

template <>
struct Caster<at::Tensor> {
  using Held = at::Tensor;
  static std::string name() { return "torch.Tensor"; }
  static bool load(PyObject* object, Held& held);
};
template <>
struct Caster<bool> {
  using Held = bool;
  static std::string name() { return "bool"; }
  static bool load(PyObject* object, Held& held);
};
template <class T>
struct WholeCaster {
  using Held = T;
  static std::string name() { return "int"; }
  static bool load(PyObject* object, Held& held) {
    if (is_a(object, PyFloat_Type)) return false;
    Ref whole = Ref::steal(PyNumber_Index(object));
    if (!whole) return PyErr_Clear(), false;
    if constexpr (std::is_unsigned_v<T>) {
      unsigned long long value = PyLong_AsUnsignedLongLong(whole.get());
      if (PyErr_Occurred() || value > std::numeric_limits<T>::max()) return PyErr_Clear(), false;
      held = static_cast<T>(value);
    } else {
      long long value = PyLong_AsLongLong(whole.get());
      if (PyErr_Occurred() || value > std::numeric_limits<T>::max() || value < std::numeric_limits<T>::min())
        return PyErr_Clear(), false;
      held = static_cast<T>(value);
    }
    return true;
  }
};
template <class T>
struct RealCaster {
  using Held = T;
  static std::string name() { return "float"; }
  static bool load(PyObject* object, Held& held) {
    Ref real = Ref::steal(PyNumber_Float(object));
    if (is_a(object, PyUnicode_Type) || !real) return PyErr_Clear(), false;
    held = static_cast<T>(PyFloat_AsDouble(real.get()));
    return true;
  }
};
#define KERNEL_LSP_WHOLE(type) template <> struct Caster<type> : WholeCaster<type> {};
KERNEL_LSP_WHOLE(short)
KERNEL_LSP_WHOLE(unsigned short)
KERNEL_LSP_WHOLE(int)
KERNEL_LSP_WHOLE(unsigned int)
KERNEL_LSP_WHOLE(long)
KERNEL_LSP_WHOLE(unsigned long)
KERNEL_LSP_WHOLE(long long)
KERNEL_LSP_WHOLE(unsigned long long)
#undef KERNEL_LSP_WHOLE
template <> struct Caster<float> : RealCaster<float> {};
template <> struct Caster<double> : RealCaster<double> {};
/// The parameter that is being converted, from 1, for messages.
inline size_t converted = 0;

/// Whether the elements of a tensor are what a pointer points to. Signs do not matter, nor what is behind `void*`.
template <class T>
constexpr bool points_to(c10::ScalarType type) {
  using S = c10::ScalarType;
  if constexpr (std::is_same_v<T, bool>) return type == S::Bool;
  else if constexpr (std::is_integral_v<T>)
    return type == (sizeof(T) == 8 ? S::Long : sizeof(T) == 4 ? S::Int : sizeof(T) == 2 ? S::Short : S::Char) ||
           (sizeof(T) == 1 && (type == S::Byte || type == S::Bool));
  else if constexpr (std::is_same_v<T, float>) return type == S::Float;
  else if constexpr (std::is_same_v<T, double>) return type == S::Double;
  else if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, c10::Half>) return type == S::Half;
  else if constexpr (std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, c10::BFloat16>) return type == S::BFloat16;
  else return true;
}
template <class T>
std::string pointer_name() {
  if constexpr (std::is_same_v<T, bool>) return "bool*";
  else if constexpr (std::is_integral_v<T>) return "int" + std::to_string(8 * sizeof(T)) + "*";
  else if constexpr (std::is_same_v<T, float>) return "float*";
  else if constexpr (std::is_same_v<T, double>) return "double*";
  else if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, c10::Half>) return "half*";
  else if constexpr (std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, c10::BFloat16>) return "bfloat16*";
  else return "pointer";
}
/// A pointer to device memory, for which a tensor is given, or None for a null pointer.
template <class T>
struct Caster<T*> {
  using Element = std::remove_const_t<T>;
  struct Held {
    at::Tensor tensor;
    T* pointer = nullptr;
    operator T*() const { return pointer; }  // NOLINT
  };
  static std::string name() { return "torch.Tensor (" + pointer_name<Element>() + ")"; }
  static bool load(PyObject* object, Held& held) {
    if (is_none(object)) return held.pointer = nullptr, true;
    if (!Caster<at::Tensor>::load(object, held.tensor)) return false;
    const at::Tensor& tensor = held.tensor;
    TORCH_CHECK(tensor.is_cuda(), "argument ", converted, " is a tensor on the CPU, where the function takes a ",
                pointer_name<Element>(), " to the GPU's memory");
    TORCH_CHECK(tensor.is_contiguous(), "argument ", converted, " is not contiguous, and a ", pointer_name<Element>(),
                " knows no strides: pass `.contiguous()`");
    TORCH_CHECK(points_to<Element>(tensor.scalar_type()), "argument ", converted, " is a tensor of ",
                at::toString(tensor.scalar_type()), ", where the function takes a ", pointer_name<Element>());
    held.pointer = static_cast<T*>(tensor.data_ptr());
    return true;
  }
};
template <>
struct Caster<std::string> {
  using Held = std::string;
  static std::string name() { return "str"; }
  static bool load(PyObject* object, Held& held);
};
template <>
struct Caster<c10::Scalar> {
  using Held = c10::Scalar;
  static std::string name() { return "Union[int, float, bool]"; }
  static bool load(PyObject* object, Held& held);
};
template <>
struct Caster<c10::ScalarType> {
  using Held = c10::ScalarType;
  static std::string name() { return "torch.dtype"; }
  static bool load(PyObject* object, Held& held);
};
template <>
struct Caster<c10::Device> {
  struct Held : c10::Device {
    Held() : c10::Device(c10::kCPU) {}
    using c10::Device::operator==;
  };
  static std::string name() { return "torch.device"; }
  static bool load(PyObject* object, Held& held);
};
template <class T>
struct Caster<std::optional<T>> {
  using Held = std::optional<T>;
  static std::string name() { return "Optional[" + Caster<T>::name() + "]"; }
  static bool load(PyObject* object, Held& held) {
    if (is_none(object)) return held = std::nullopt, true;
    typename Caster<T>::Held value{};
    if (!Caster<T>::load(object, value)) return false;
    held = std::move(value);
    return true;
  }
};
bool is_sequence(PyObject* object);
template <class T>
struct Caster<std::vector<T>> {
  using Held = std::vector<T>;
  static std::string name() { return "List[" + Caster<T>::name() + "]"; }
  static bool load(PyObject* object, Held& held) {
    if (!is_sequence(object)) return false;
    held.clear();
    for (Py_ssize_t at = 0, count = PySequence_Size(object); at < count; ++at) {
      typename Caster<T>::Held value{};
      if (!Caster<T>::load(checked(PySequence_GetItem(object, at)).get(), value)) return false;
      held.push_back(std::move(value));
    }
    return true;
  }
};
template <class T>
struct Caster<c10::ArrayRef<T>> : Caster<std::vector<T>> {};
template <class... T>
struct Caster<std::tuple<T...>> {
  using Held = std::tuple<T...>;
  static std::string name() {
    std::string list;
    ((list += (list.empty() ? "" : ", ") + Caster<T>::name()), ...);
    return "Tuple[" + list + "]";
  }
  static bool load(PyObject* object, Held& held) {
    if (!is_sequence(object) || PySequence_Size(object) != static_cast<Py_ssize_t>(sizeof...(T))) return false;
    Py_ssize_t at = 0;
    return std::apply(
        [&](auto&... value) {
          return (Caster<std::decay_t<decltype(value)>>::load(
                      checked(PySequence_GetItem(object, at++)).get(), value) && ...);
        },
        held);
  }
};
template <class A, class B>
struct Caster<std::pair<A, B>> {
  using Held = std::pair<A, B>;
  static std::string name() { return Caster<std::tuple<A, B>>::name(); }
  static bool load(PyObject* object, Held& held) {
    std::tuple<A, B> both;
    if (!Caster<std::tuple<A, B>>::load(object, both)) return false;
    held = {std::get<0>(both), std::get<1>(both)};
    return true;
  }
};

template <class T>
std::string result_name() {
  if constexpr (std::is_void_v<T>) return "None";
  else if constexpr (std::is_same_v<T, const char*>) return "str";
  else return Caster<T>::name();
}

/// Raise as Python's exception whatever C++ threw.
PyObject* translated();

struct Parameter {
  std::string name, type;
  Ref standard;  // the default, if there is one
};
/// One C++ function under a name. `invoke` answers nothing where the objects do not fit its parameters.
struct Overload {
  std::vector<Parameter> parameters;
  std::string doc, result;
  std::function<Ref(const std::vector<PyObject*>&)> invoke;

  std::string signature() const;
  /// The objects for each parameter, from a call's; false where there are too many, too few, or unknown names.
  bool arrange(PyObject* positional, PyObject* named, std::vector<PyObject*>& out) const;
};
struct Bound {
  std::string name, doc;
  std::vector<Overload> overloads;
  PyMethodDef definition{};
};
extern std::vector<std::unique_ptr<Bound>>& bound_functions;
void bind(const char* name, Overload overload);
/// The bound functions by name.
Ref functions();

PyObject* call_bound(PyObject* self, PyObject* positional, PyObject* named);

template <class Result, class... Given, size_t... at, class Function>
Overload overload_of(Function function, std::index_sequence<at...>) {
  Overload made;
  made.parameters = {Parameter{"arg" + std::to_string(at), Caster<std::decay_t<Given>>::name(), {}}...};
  made.result = result_name<std::decay_t<Result>>();
  made.invoke = [function](const std::vector<PyObject*>& objects) mutable -> Ref {
    std::tuple<typename Caster<std::decay_t<Given>>::Held...> held;
    if (!((converted = at + 1, Caster<std::decay_t<Given>>::load(objects[at], std::get<at>(held))) && ...)) return {};
    if constexpr (std::is_void_v<Result>) {
      function(static_cast<std::conditional_t<std::is_reference_v<Given>, Given, std::decay_t<Given>>>(
          std::get<at>(held))...);
      return none();
    } else {
      return to_python(function(
          static_cast<std::conditional_t<std::is_reference_v<Given>, Given, std::decay_t<Given>>>(
              std::get<at>(held))...));
    }
  };
  return made;
}
template <class Result, class... Given>
Overload overload_of(Result (*function)(Given...)) {
  return overload_of<Result, Given...>(function, std::index_sequence_for<Given...>());
}
template <class Lambda, class Result, class... Given>
Overload overload_of(Lambda lambda, Result (Lambda::*)(Given...) const) {
  return overload_of<Result, Given...>(lambda, std::index_sequence_for<Given...>());
}
template <class Lambda, class = decltype(&Lambda::operator())>
Overload overload_of(Lambda lambda) {
  return overload_of(lambda, &Lambda::operator());
}

}  // namespace kernel_lsp

namespace pybind11 {
struct none {};
}  // namespace pybind11
namespace kernel_lsp {
inline Ref to_python(pybind11::none) { return none(); }
}  // namespace kernel_lsp
namespace pybind11 {
struct arg {
  explicit arg(const char* name) : name(name) {}
  template <class T>
  arg operator=(T&& value) const {
    arg made = *this;
    made.standard = kernel_lsp::to_python(value);
    return made;
  }
  arg& noconvert(bool = true) { return *this; }
  arg& none(bool = true) { return *this; }
  std::string name;
  kernel_lsp::Ref standard;
};
inline namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals
inline kernel_lsp::Ref to_python(const arg& value) { return value.standard; }
struct gil_scoped_release {};
template <class T>
struct call_guard {};
template <class... Given>
struct overload_cast_ {
  template <class Result>
  constexpr auto operator()(Result (*function)(Given...)) const { return function; }
};
template <class... Given>
constexpr overload_cast_<Given...> overload_cast{};

class module_ {
 public:
  template <class Function, class... Extra>
  module_& def(const char* name, Function&& function, const Extra&... extra) {
    kernel_lsp::Overload made = kernel_lsp::overload_of(std::forward<Function>(function));
    size_t named = 0;
    (take(made, named, extra), ...);
    kernel_lsp::bind(name, std::move(made));
    return *this;
  }
  std::string& doc() { return doc_; }

 private:
  static void take(kernel_lsp::Overload& made, size_t&, const char* doc) { made.doc = doc; }
  static void take(kernel_lsp::Overload& made, size_t& named, const arg& given) {
    if (named < made.parameters.size()) {
      made.parameters[named].name = given.name;
      made.parameters[named].standard = given.standard;
      ++named;
    }
  }
  template <class T>
  static void take(kernel_lsp::Overload&, size_t&, const call_guard<T>&) {}
  std::string doc_;
};
using module = module_;
}  // namespace pybind11
namespace py = pybind11;
namespace torch {
namespace py = pybind11;
}  // namespace torch

#define PYBIND11_MODULE(name, variable)                                                     \
  static void kernel_lsp_bind(::pybind11::module_&);                                        \
  extern "C" __attribute__((visibility("default"))) PyObject* kernel_lsp_connect(PyObject* runtime) { \
    try {                                                                                   \
      ::pybind11::module_ made;                                                             \
      ::kernel_lsp::runtime = ::kernel_lsp::Ref::borrow(runtime);                           \
      kernel_lsp_bind(made);                                                                \
      return ::kernel_lsp::functions().release();                                           \
    } catch (...) {                                                                         \
      return ::kernel_lsp::translated();                                                    \
    }                                                                                       \
  }                                                                                         \
  static void kernel_lsp_bind(::pybind11::module_& variable)
#define TORCH_EXTENSION_NAME kernel_lsp_extension
