// The little of Python's stable interface that the thin header uses, declared here so that no Python headers are needed.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

struct _object;
struct _typeobject;
using PyObject = _object;
using Py_ssize_t = std::ptrdiff_t;
using PyCFunction = PyObject* (*)(PyObject*, PyObject*);
struct PyMethodDef {
  const char* ml_name;
  PyCFunction ml_meth;
  int ml_flags;
  const char* ml_doc;
};

#pragma GCC visibility push(default)
extern "C" {
extern _object _Py_NoneStruct;
extern _typeobject PyBool_Type, PyLong_Type, PyFloat_Type, PyUnicode_Type, PyTuple_Type, PyList_Type;
extern PyObject *PyExc_Exception, *PyExc_RuntimeError, *PyExc_TypeError, *PyExc_ValueError, *PyExc_IndexError,
    *PyExc_NotImplementedError, *PyExc_MemoryError, *PyExc_OverflowError;
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
PyObject* PyErr_Occurred();
void PyErr_Clear();
void PyErr_SetString(PyObject*, const char*);
void PyErr_Fetch(PyObject**, PyObject**, PyObject**);
void PyErr_Restore(PyObject*, PyObject*, PyObject*);
int PyObject_IsInstance(PyObject*, PyObject*);
int PyObject_IsTrue(PyObject*);
PyObject* PyObject_GetAttrString(PyObject*, const char*);
int PyObject_SetAttrString(PyObject*, const char*, PyObject*);
PyObject* PyObject_Call(PyObject*, PyObject*, PyObject*);
PyObject* PyObject_Str(PyObject*);
PyObject* PyObject_Repr(PyObject*);
PyObject* PyNumber_Index(PyObject*);
PyObject* PyNumber_Float(PyObject*);
PyObject* PyBool_FromLong(long);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyLong_FromUnsignedLongLong(unsigned long long);
PyObject* PyLong_FromVoidPtr(void*);
long long PyLong_AsLongLong(PyObject*);
unsigned long long PyLong_AsUnsignedLongLong(PyObject*);
PyObject* PyFloat_FromDouble(double);
double PyFloat_AsDouble(PyObject*);
PyObject* PyUnicode_FromStringAndSize(const char*, Py_ssize_t);
const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*);
PyObject* PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject*, Py_ssize_t, PyObject*);
Py_ssize_t PyTuple_Size(PyObject*);
PyObject* PyTuple_GetItem(PyObject*, Py_ssize_t);
PyObject* PyList_New(Py_ssize_t);
int PyList_SetItem(PyObject*, Py_ssize_t, PyObject*);
Py_ssize_t PySequence_Size(PyObject*);
PyObject* PySequence_GetItem(PyObject*, Py_ssize_t);
PyObject* PyDict_New();
Py_ssize_t PyDict_Size(PyObject*);
int PyDict_SetItemString(PyObject*, const char*, PyObject*);
PyObject* PyDict_GetItemString(PyObject*, const char*);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
}
#pragma GCC visibility pop

namespace kernel_lsp {

/// A reference to a Python object, or to none.
class Ref {
 public:
  Ref() = default;
  static Ref steal(PyObject* object) {
    Ref made;
    made.object_ = object;
    return made;
  }
  static Ref borrow(PyObject* object) {
    Py_IncRef(object);
    return steal(object);
  }
  Ref(const Ref& other) : object_(other.object_) { Py_IncRef(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_DecRef(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

inline Ref none() { return Ref::borrow(&_Py_NoneStruct); }
inline bool is_none(PyObject* object) { return object == &_Py_NoneStruct; }
inline bool is_a(PyObject* object, _typeobject& type) {
  return PyObject_IsInstance(object, reinterpret_cast<PyObject*>(&type)) == 1;
}
std::string text(PyObject* object);

/// An exception of Python's on its way through C++; `restore` hands it back.
class PythonError : public std::exception {
 public:
  PythonError();
  const char* what() const noexcept override { return message_.c_str(); }
  void restore() { PyErr_Restore(type_.release(), value_.release(), trace_.release()); }

 private:
  Ref type_, value_, trace_;
  std::string message_;
};

inline Ref checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return Ref::steal(object);
}
inline void checked(int status) {
  if (status < 0) throw PythonError();
}
inline Ref attribute(PyObject* object, const char* name) { return checked(PyObject_GetAttrString(object, name)); }

/// What launches and allocates for this library: an object of `runner.workers.inline`. Its `torch` is the module.
/// It and other objects that live as long as the process are never freed, for Python ends first.
extern Ref& runtime;

Ref torch_attribute(const char* name);

}  // namespace kernel_lsp
