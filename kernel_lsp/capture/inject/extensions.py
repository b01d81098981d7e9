"""Hooks that report calls of the functions of torch's extensions to the recorder. See `recorder.py`.

A function of an extension has no frame that could be watched, so it is replaced in its module by one that reports the
call. It is captured if a CUDA file defines it, which then is its kernel file: one that `load` compiles or, for a module
that was built before, one of the project it lies in.
"""

import ast
import functools
import importlib.machinery
import inspect
import os
import re
import sys
import types

import _kernel_lsp_calls as calls
import _kernel_lsp_hooks as hooks
import _kernel_lsp_seen as seen

_CUDA = (".cu", ".cuh")
_SOURCES = (*_CUDA, ".cpp", ".cc", ".cxx")
_PROJECT = ("setup.py", "pyproject.toml", ".git")
_NO_SOURCES = ("build", "dist", "node_modules", "site-packages", "dist-packages", "third_party")
MOST_SOURCES = 500
_INLINE = "its CUDA text is a string: put it into a .cu file, and build that with `load`"


class _Place:
    """Where a function is defined; the recorder reads the same names of a Python function's code."""

    def __init__(self, file, name, line, why=""):
        self.co_filename, self.co_name, self.co_firstlineno, self.why = file, name, line, why


def watch_extensions(module):
    """Watch the functions of extensions that `module`, `torch.utils.cpp_extension`, builds from now on."""
    hooks._start()
    module.load = _around(module.load, _of_files)
    module.load_inline = _around(module.load_inline, _of_text)


def watch_built(_):
    """Watch the functions of extension modules of the user's project, which are imported from now on."""
    loader = importlib.machinery.ExtensionFileLoader
    original = loader.exec_module

    @functools.wraps(original)
    def exec_module(self, module):
        original(self, module)
        _imported(module, self.path)

    loader.exec_module = exec_module


@seen.guarded
def _imported(module, path):
    path = os.path.abspath(path)
    installed = any(path.startswith(os.path.join(place, "")) for place in (sys.prefix, sys.base_prefix))
    if installed or any(f"{os.sep}{name}{os.sep}" in path for name in _NO_SOURCES[3:5]):
        return
    texts = _read(_sources_of(path))
    if _has_cuda(texts):
        hooks._start()
        place_of = _placing(texts)  # of other sources it is not known that they are this module's
        _report_calls(module, lambda name: place if not (place := place_of(name)).why else None)


def _sources_of(path):
    """Return the files of C++ and CUDA in the project that a built module lies in."""
    root = folder = os.path.dirname(path)
    for _ in range(4):
        if any(os.path.exists(os.path.join(folder, name)) for name in _PROJECT):
            root = folder
            break
        folder = os.path.dirname(folder)
    found = []
    for above, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _NO_SOURCES and not name.startswith("."))
        found += [os.path.join(above, name) for name in sorted(files) if name.endswith(_SOURCES)]
        if len(found) > MOST_SOURCES:
            return []
    return found


def _read(paths):
    texts = {}
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as opened:
            texts[path] = opened.read()
    return texts


def _around(original, placing):
    @functools.wraps(original)
    def build(*args, **kwargs):
        made = original(*args, **kwargs)
        _watch(made, placing, args, kwargs, sys._getframe(1))
        return made

    return build


@seen.guarded
def _watch(made, placing, args, kwargs, frame):
    if inspect.ismodule(made):  # else it registered operators with torch
        _report_calls(made, placing(args, kwargs, frame))


def _report_calls(made, place_of):
    for name, value in list(vars(made).items()):
        if name.startswith("__") or inspect.isclass(value) or isinstance(value, types.FunctionType):
            continue
        place = place_of(name) if callable(value) else None
        if place is not None:
            setattr(made, name, _reporting(value, place))


def _of_text(args, kwargs, frame):
    if not (kwargs.get("cuda_sources") or args[2:3]):
        return lambda name: None
    file, line = frame.f_code.co_filename, frame.f_lineno
    return lambda name: _Place(file, name, line, _INLINE)


def _of_files(args, kwargs, frame):
    sources = kwargs["sources"] if "sources" in kwargs else args[1]
    sources = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    texts = _read(os.path.abspath(os.fspath(source)) for source in sources)
    return _placing(texts) if _has_cuda(texts) else lambda name: None


def _has_cuda(texts):
    return any(path.endswith(_CUDA) for path in texts)


def _placing(texts):
    def place_of(name):
        place = _defined_in(texts, name)
        if not place.why:
            seen.STATE.files.setdefault(place.co_filename, texts[place.co_filename])
        return place

    return place_of


def _defined_in(texts, name):
    """Return where the function that is bound as `name` is defined."""
    binding = re.compile(rf'\.\s*def\s*\(\s*"{re.escape(name)}"\s*,\s*(?:&\s*)?((?:\w+\s*::\s*)*\w+)\s*[,)]')
    bound = next((found for text in texts.values() if (found := binding.search(text))), None)
    plain = re.split(r"\W+", bound[1])[-1] if bound else name
    definition = re.compile(rf"(?<![\w.:>]){re.escape(plain)}\s*\([^;{{}}]*\)\s*(?:const\s*|noexcept\s*)*\{{")
    for path, text in texts.items():
        found = definition.search(text)
        if path.endswith(_CUDA) and found:
            # By its own bindings it is built as it stands; else functions are bound by their C++ names.
            own = "PYBIND11_MODULE" in text
            return _Place(path, name if own else plain, 1 + text.count("\n", 0, found.start()))
    file = next(path for path in texts if path.endswith(_CUDA))
    others = ", ".join(os.path.basename(path) for path in texts if not path.endswith(_CUDA)) or "a macro or a lambda"
    return _Place(file, name, 1, f"no CUDA file defines `{plain}`, which Python calls: look into {others}")


def _reporting(function, place):
    parameters = _parameters(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        begun = _entered(place, parameters, args, kwargs)
        returned = function(*args, **kwargs)
        if begun is not None:
            _left(begun, returned)
        return returned

    return call


@seen.guarded
def _entered(place, parameters, args, kwargs):
    """Count a call before it happens, and describe its arguments if their signature is new."""
    if not seen.is_open():
        return None
    state, name, file = seen.STATE, place.co_name, place.co_filename
    state.launches += 1
    kernel = state.kernels.setdefault(
        (file, name), dict(file=file, name=name, line=place.co_firstlineno, launches=0, why=place.why)
    )
    kernel["launches"] += 1
    seen.write_counts_when_due()
    if place.why or (state.only and not any(part in name for part in state.only)):
        return None
    values = _named(parameters, args, kwargs)
    if values is None:
        kernel["why"] = "its arguments cannot be told apart: name them in its binding, or give it no keywords"
        return None
    for argument, value in values.items():
        if not calls.described().can_be_given(value):
            kernel["why"] = f"its argument `{argument}` is a {type(value).__name__}"
            return None
    begun = calls.BegunCall(place, values, False)
    begun.kernels.append(name)
    calls.begin(begun)
    return begun


_left = seen.guarded(calls.finish)


def _parameters(function):
    """Return name -> default of a function's parameters, as pybind11's documentation has them; None if it has not.

    A default is a list with the value in it; it is empty without one, and where the value is not plain.
    """
    head = re.match(r"\s*\w+(\(.*\))\s*->", (getattr(function, "__doc__", "") or "").partition("\n")[0])
    try:
        given = ast.parse(f"def _{head[1]}: ...").body[0].args if head else None
    except SyntaxError:
        return None
    if given is None or given.vararg or given.kwarg:
        return None
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    defaults = [[]] * (len(names) - len(given.defaults)) + [_plain(one) for one in given.defaults]
    return dict(zip(names, defaults, strict=True))


def _plain(node):
    try:
        return [ast.literal_eval(node)]
    except ValueError:
        return []


def _named(parameters, args, kwargs):
    """Return the arguments of a call in order by name, with the defaults of those left out; None if it is not known."""
    if parameters is None or len(args) > len(parameters):
        return None if kwargs else {f"arg{number}": value for number, value in enumerate(args)}
    values = dict(zip(parameters, args, strict=False))
    for name, default in list(parameters.items())[len(args) :]:
        if name in kwargs:
            values[name] = kwargs[name]
        elif default:
            values[name] = default[0]
        else:
            return None
    return values
