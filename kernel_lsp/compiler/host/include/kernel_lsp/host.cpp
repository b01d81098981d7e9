// The bodies of the thin header's functions, compiled once for all libraries and linked into each.
#include "host.h"

namespace kernel_lsp {

Ref& runtime = *new Ref;

std::vector<Configuration> configurations;

std::vector<std::unique_ptr<Bound>>& bound_functions = *new std::vector<std::unique_ptr<Bound>>;

std::string text(PyObject* object) {
  Ref said = Ref::steal(PyObject_Str(object));
  Py_ssize_t size = 0;
  const char* data = said ? PyUnicode_AsUTF8AndSize(said.get(), &size) : nullptr;
  if (data == nullptr) PyErr_Clear();
  return data ? std::string(data, size) : std::string();
}

PythonError::PythonError() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  type_ = Ref::steal(type), value_ = Ref::steal(value), trace_ = Ref::steal(trace);
  message_ = value ? text(value) : "an error in Python";
}

Ref torch_attribute(const char* name) { return attribute(attribute(runtime.get(), "torch").get(), name); }

}  // namespace kernel_lsp

namespace c10 {

Device::Device(const std::string& name) {
  auto colon = name.find(':');
  auto kind = name.substr(0, colon);
  if (kind != "cuda" && kind != "cpu") throw Error("device " + name + " is not offered here");
  type_ = kind == "cuda" ? DeviceType::CUDA : DeviceType::CPU;
  index_ = colon == std::string::npos ? -1 : static_cast<DeviceIndex>(std::stoi(name.substr(colon + 1)));
}

std::string Device::str() const {
  return std::string(is_cuda() ? "cuda" : "cpu") + (index_ < 0 ? "" : ":" + std::to_string(index_));
}

}  // namespace c10

namespace kernel_lsp {

Ref invoke(const char* method, std::initializer_list<long long> numbers) {
  Ref arguments = checked(PyTuple_New(numbers.size()));
  Py_ssize_t at = 0;
  for (long long number : numbers) PyTuple_SetItem(arguments.get(), at++, checked(PyLong_FromLongLong(number)).release());
  return checked(PyObject_Call(attribute(runtime.get(), method).get(), arguments.get(), nullptr));
}

long long number_of(const char* method, std::initializer_list<long long> numbers) {
  long long number = PyLong_AsLongLong(invoke(method, numbers).get());
  if (number == -1 && PyErr_Occurred()) throw PythonError();
  return number;
}

void configure(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
}

void launch(const void* code, const Configuration& how, void** arguments) {
  invoke("launch", {place(code), how.grid.x, how.grid.y, how.grid.z, how.block.x, how.block.y, how.block.z,
                    static_cast<long long>(how.shared), handle(how.stream), handle(arguments)});
}

void launch_this(void** arguments) {
  if (configurations.empty()) throw c10::Error("a kernel is called without <<<grid, block>>>");
  Configuration how = configurations.back();
  configurations.pop_back();
  launch(__builtin_extract_return_addr(__builtin_return_address(0)), how, arguments);
}

}  // namespace kernel_lsp

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  kernel_lsp::invoke("fill", {kernel_lsp::handle(to), value, static_cast<long long>(bytes), kernel_lsp::handle(stream)});
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
    throw c10::Error("only copies from device to device are made here");
  kernel_lsp::invoke("copy", {kernel_lsp::handle(to), kernel_lsp::handle(from), static_cast<long long>(bytes),
                              kernel_lsp::handle(stream)});
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  auto ask = [](cudaDeviceAttr attribute) {
    return static_cast<int>(kernel_lsp::number_of("device_attribute", {attribute}));
  };
  *properties = {};
  properties->sharedMemPerBlock = ask(cudaDevAttrMaxSharedMemoryPerBlock);
  properties->sharedMemPerBlockOptin = ask(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  properties->sharedMemPerMultiprocessor = ask(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7FFFFFFF;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->major = ask(cudaDevAttrComputeCapabilityMajor);
  properties->minor = ask(cudaDevAttrComputeCapabilityMinor);
  properties->multiProcessorCount = ask(cudaDevAttrMultiProcessorCount);
  properties->maxThreadsPerMultiProcessor = ask(cudaDevAttrMaxThreadsPerMultiProcessor);
  return cudaSuccess;
}

namespace at::cuda {

cudaDeviceProp* getCurrentDeviceProperties() {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp made;
    cudaGetDeviceProperties(&made, 0);
    return made;
  }();
  return &properties;
}

}  // namespace at::cuda

namespace kernel_lsp {

c10::ScalarType scalar_type_of(PyObject* dtype) {
  static std::unordered_map<std::string, c10::ScalarType> known = {
#define KERNEL_LSP_CASE(cpp, name, python) {"torch." #python, c10::ScalarType::name},
      KERNEL_LSP_SCALAR_TYPES(KERNEL_LSP_CASE)
#undef KERNEL_LSP_CASE
  };
  static std::unordered_map<PyObject*, c10::ScalarType> seen;  // types of elements live as long as the process
  auto found = seen.find(dtype);
  if (found == seen.end()) {
    auto named = known.find(text(dtype));
    found = seen.emplace(dtype, named == known.end() ? c10::ScalarType::Undefined : named->second).first;
  }
  return found->second;
}

std::vector<int64_t> numbers_of(PyObject* sequence) {
  Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0) throw PythonError();
  std::vector<int64_t> numbers(count);
  for (Py_ssize_t at = 0; at < count; ++at) {
    numbers[at] = PyLong_AsLongLong(checked(PySequence_GetItem(sequence, at)).get());
    if (numbers[at] == -1 && PyErr_Occurred()) throw PythonError();
  }
  return numbers;
}

Ref to_python(c10::MemoryFormat format) {
  static const char* const names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
  return torch_attribute(names[static_cast<int>(format)]);
}

Ref to_python(const c10::Scalar& value) {
  if (value.isBoolean()) return to_python(value.toBool());
  return value.isFloatingPoint() ? to_python(value.toDouble()) : to_python(value.toLong());
}

Ref to_python(const std::vector<bool>& list) {
  Ref made = checked(PyList_New(static_cast<Py_ssize_t>(list.size())));
  for (size_t at = 0; at < list.size(); ++at)
    PyList_SetItem(made.get(), static_cast<Py_ssize_t>(at), to_python(static_cast<bool>(list[at])).release());
  return made;
}

}  // namespace kernel_lsp

namespace at {

ScalarType Tensor::scalar_type() const {
  object();
  if (!state_->typed) {
    state_->type = kernel_lsp::scalar_type_of(kernel_lsp::attribute(object(), "dtype").get());
    state_->typed = true;
  }
  return state_->type;
}

void* Tensor::data_ptr() const {
  object();
  if (!state_->placed) {
    kernel_lsp::Ref arguments = kernel_lsp::checked(PyTuple_New(1));
    PyTuple_SetItem(arguments.get(), 0, kernel_lsp::Ref(state_->object).release());
    kernel_lsp::Ref given = kernel_lsp::checked(PyObject_Call(
        kernel_lsp::attribute(kernel_lsp::runtime.get(), "pointer").get(), arguments.get(), nullptr));
    state_->pointer = reinterpret_cast<void*>(PyLong_AsUnsignedLongLong(given.get()));
    state_->placed = true;
  }
  return state_->pointer;
}

Device Tensor::device() const { return Device(kernel_lsp::text(kernel_lsp::attribute(object(), "device").get())); }

TensorOptions Tensor::options() const { return TensorOptions(scalar_type()).device(device()); }

int64_t Tensor::numel() const {
  int64_t count = 1;
  for (int64_t extent : shape().sizes) count *= extent;
  return count;
}

bool Tensor::is_contiguous() const { return PyObject_IsTrue(ask("is_contiguous").get()) == 1; }

kernel_lsp::TensorState& Tensor::shape() const {
  PyObject* self = object();
  if (!state_->shaped) {
    state_->sizes = kernel_lsp::numbers_of(kernel_lsp::attribute(self, "shape").get());
    state_->strides = kernel_lsp::numbers_of(ask("stride").get());
    state_->shaped = true;
  }
  return *state_;
}

size_t Tensor::wrapped(int64_t dim) const {
  int64_t count = this->dim();
  TORCH_CHECK_INDEX(
      dim >= -std::max<int64_t>(count, 1) && dim < std::max<int64_t>(count, 1) && count > 0,
      "Dimension out of range (expected to be in range of [", -std::max<int64_t>(count, 1), ", ",
      std::max<int64_t>(count, 1) - 1, "], but got ", dim, ")");
  return static_cast<size_t>(dim < 0 ? dim + count : dim);
}

kernel_lsp::Ref Tensor::ask(const char* name) const {
  return kernel_lsp::checked(PyObject_Call(
      kernel_lsp::attribute(object(), name).get(), kernel_lsp::checked(PyTuple_New(0)).get(), nullptr));
}

int64_t Tensor::number(const char* name) const { return PyLong_AsLongLong(ask(name).get()); }

bool Tensor::flag(const char* name) const { return PyObject_IsTrue(kernel_lsp::attribute(object(), name).get()) == 1; }

PyObject* Tensor::object() const {
  if (!state_) throw c10::Error("an undefined tensor is used");
  return state_->object.get();
}

}  // namespace at

namespace kernel_lsp {

void Arguments::name(const char* key, const Ref& value) {
  if (!named_) named_ = checked(PyDict_New());
  checked(PyDict_SetItemString(named_.get(), key, value.get()));
}

Ref Arguments::call(const Ref& callee) {
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(positional_.size())));
  Py_ssize_t at = 0;
  for (Ref& value : positional_) PyTuple_SetItem(tuple.get(), at++, value.release());
  return checked(PyObject_Call(callee.get(), tuple.get(), named_.get()));
}

void Arguments::add_options(const c10::TensorOptions& options) {
  if (options.dtype_opt()) name("dtype", to_python(*options.dtype_opt()));
  if (options.device_opt()) name("device", to_python(*options.device_opt()));
  if (options.requires_grad_opt()) name("requires_grad", to_python(*options.requires_grad_opt()));
  if (options.pinned_memory_opt()) name("pin_memory", to_python(*options.pinned_memory_opt()));
  if (options.memory_format_opt()) name("memory_format", to_python(*options.memory_format_opt()));
}

}  // namespace kernel_lsp

namespace at {

Tensor Tensor::to(TensorOptions options) const {
  kernel_lsp::Arguments arguments;
  arguments.add(options);
  return Tensor(arguments.call(kernel_lsp::attribute(object(), "to")));
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  return PyObject_IsTrue(kernel_lsp::call(kernel_lsp::attribute(object(), "is_contiguous"), format).get()) == 1;
}

Scalar Tensor::item() const {
  kernel_lsp::Ref value = ask("item");
  if (kernel_lsp::is_a(value.get(), PyBool_Type)) return Scalar(PyObject_IsTrue(value.get()) == 1);
  if (kernel_lsp::is_a(value.get(), PyFloat_Type)) return Scalar(PyFloat_AsDouble(value.get()));
  return Scalar(static_cast<int64_t>(PyLong_AsLongLong(value.get())));
}

std::tuple<Tensor, Tensor> two_of(const kernel_lsp::Ref& given) {
  auto at = [&](Py_ssize_t which) { return Tensor(kernel_lsp::checked(PySequence_GetItem(given.get(), which))); };
  return {at(0), at(1)};
}

}  // namespace at

namespace kernel_lsp {

PyObject* translated() {
  configurations.clear();
  try {
    throw;
  } catch (PythonError& error) {
    error.restore();
  } catch (const c10::IndexError& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const c10::ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const c10::TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const c10::NotImplementedError& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what());
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::overflow_error& error) {
    PyErr_SetString(PyExc_OverflowError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::domain_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::length_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
  return nullptr;
}

PyObject* call_bound(PyObject* self, PyObject* positional, PyObject* named) {
  try {
    const Bound& bound = *bound_functions[static_cast<size_t>(PyLong_AsLongLong(self))];
    for (const Overload& overload : bound.overloads) {
      std::vector<PyObject*> objects;
      if (!overload.arrange(positional, named, objects)) continue;
      if (Ref result = overload.invoke(objects)) return result.release();
    }
    std::string message = bound.name + "(): incompatible function arguments. The following argument types are supported:";
    int number = 0;
    for (const Overload& overload : bound.overloads)
      message += "\n    " + std::to_string(++number) + ". " + overload.signature();
    std::string list;
    for (Py_ssize_t at = 0; at < PyTuple_Size(positional); ++at) {
      Ref type = attribute(PyTuple_GetItem(positional, at), "__class__");
      list += (list.empty() ? "" : ", ") + text(attribute(type.get(), "__name__").get());
    }
    if (named && PyDict_Size(named))
      list += (list.empty() ? "" : "; ") + std::string("kwargs: ") + std::to_string(PyDict_Size(named));
    PyErr_SetString(PyExc_TypeError, (message + "\n\nInvoked with: " + list).c_str());
    return nullptr;
  } catch (...) {
    return translated();
  }
}

bool is_sequence(PyObject* object) { return is_a(object, PyTuple_Type) || is_a(object, PyList_Type); }

std::string Overload::signature() const {
  std::string list;
  for (const Parameter& one : parameters)
    list += (list.empty() ? "" : ", ") + one.name + ": " + one.type +
            (one.standard ? " = " + text(Ref::steal(PyObject_Repr(one.standard.get())).get()) : "");
  return "(" + list + ") -> " + result;
}

bool Overload::arrange(PyObject* positional, PyObject* named, std::vector<PyObject*>& out) const {
  const size_t given = static_cast<size_t>(PyTuple_Size(positional));
  if (given > parameters.size()) return false;
  Py_ssize_t used = 0;
  for (size_t at = 0; at < parameters.size(); ++at) {
    PyObject* by_name = named ? PyDict_GetItemString(named, parameters[at].name.c_str()) : nullptr;
    if (at < given && by_name) return false;
    used += by_name != nullptr;
    PyObject* object = at < given ? PyTuple_GetItem(positional, static_cast<Py_ssize_t>(at)) : by_name;
    if (!object) object = parameters[at].standard.get();
    if (!object) return false;
    out.push_back(object);
  }
  return !named || used == PyDict_Size(named);
}

/// The bound functions by name.
Ref functions() {
  constexpr int positional_and_named = 3;
  Ref made = checked(PyDict_New());
  for (size_t at = 0; at < bound_functions.size(); ++at) {
    Bound& bound = *bound_functions[at];
    auto code = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call_bound));
    bound.definition = {bound.name.c_str(), code, positional_and_named, bound.doc.c_str()};
    Ref self = checked(PyLong_FromLongLong(static_cast<long long>(at)));
    checked(PyDict_SetItemString(
        made.get(), bound.name.c_str(), checked(PyCFunction_NewEx(&bound.definition, self.get(), nullptr)).get()));
  }
  return made;
}

void bind(const char* name, Overload overload) {
  for (auto& bound : bound_functions)
    if (bound->name == name) return bound->overloads.push_back(std::move(overload));
  auto bound = std::make_unique<Bound>();
  bound->name = name;
  bound->doc = std::string(name) + overload.signature() + "\n" + (overload.doc.empty() ? "" : "\n" + overload.doc + "\n");
  bound->overloads.push_back(std::move(overload));
  bound_functions.push_back(std::move(bound));
}

bool Caster<at::Tensor>::load(PyObject* object, Held& held) {
  static Ref& tensor = *new Ref(torch_attribute("Tensor"));
  if (PyObject_IsInstance(object, tensor.get()) != 1) return false;
  held = at::Tensor(Ref::borrow(object));
  return true;
}

bool Caster<bool>::load(PyObject* object, Held& held) {
  if (!is_a(object, PyBool_Type)) return false;
  held = PyObject_IsTrue(object) == 1;
  return true;
}

bool Caster<std::string>::load(PyObject* object, Held& held) {
  if (!is_a(object, PyUnicode_Type)) return false;
  held = text(object);
  return true;
}

bool Caster<c10::Scalar>::load(PyObject* object, Held& held) {
  bool truth = false;
  int64_t whole = 0;
  double real = 0;
  if (Caster<bool>::load(object, truth)) return held = truth, true;
  if (Caster<int64_t>::load(object, whole)) return held = whole, true;
  if (is_a(object, PyFloat_Type) && Caster<double>::load(object, real)) return held = real, true;
  return false;
}

bool Caster<c10::ScalarType>::load(PyObject* object, Held& held) {
  static Ref& dtype = *new Ref(torch_attribute("dtype"));
  if (PyObject_IsInstance(object, dtype.get()) != 1) return false;
  held = scalar_type_of(object);
  return true;
}

bool Caster<c10::Device>::load(PyObject* object, Held& held) {
  static Ref& device = *new Ref(torch_attribute("device"));
  if (PyObject_IsInstance(object, device.get()) != 1 && !is_a(object, PyUnicode_Type)) return false;
  static_cast<c10::Device&>(held) = c10::Device(text(object));
  return true;
}

}  // namespace kernel_lsp
