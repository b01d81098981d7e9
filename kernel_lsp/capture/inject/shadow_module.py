"""Finds the functions of a module that launch kernels, and executes a variant. Runs in the user's process."""

import importlib.machinery
import os
import sys
import types

_KERNEL_TYPES = ("JITFunction", "InterpretedFunction", "GluonJITFunction", "Autotuner", "Heuristics")


def said(error, path):
    """Return what an exception says, with the line of this file that it passed last."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            frames.append(trace.tb_lineno)
        trace = trace.tb_next
    first = (str(error).strip().splitlines() or [""])[0][:200]
    line = f" (line {frames[-1]})" if frames else ""
    return f"{type(error).__name__}: {first}{line}" if first else type(error).__name__ + line


def executed(module, path):
    """Return the variant in a file, executed in the place of a module: of its package, with its `__file__`."""
    name = f"{module.__name__}__kernel_lsp_variant"
    with open(path, encoding="utf-8") as opened:
        text = opened.read()
    made = types.ModuleType(name)
    made.__file__, made.__package__ = module.__file__, module.__package__
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=hasattr(module, "__path__"))
    if hasattr(module, "__path__"):
        made.__path__ = module.__path__
    before = sys.modules.get(name)
    sys.modules[name] = made
    try:
        exec(compile(text, path, "exec"), vars(made))
    except BaseException:
        if before is None:
            del sys.modules[name]
        raise
    return made


def launching(module, file):
    """Return the names of the module's functions that launch a kernel other than through another of its functions."""
    known = {}

    def launches(value, depth=0):
        if id(value) not in known:
            known[id(value)] = False  # while it is looked at
            codes = list(_codes(value))
            names = {name for code in codes for name in _names(code)}
            found = [vars(module)[name] for name in names if name in vars(module)]
            known[id(value)] = any(
                _is_kernel(one) or (depth < 8 and _is_class_here(one, module) and launches(one, depth + 1))
                for one in found
            )
        return known[id(value)]

    return [name for name, value in vars(module).items() if _is_function_of(file, value) and launches(value)]


def _is_kernel(value):
    if isinstance(value, (list, tuple)):
        return any(map(_is_kernel, value))
    if isinstance(value, dict):
        return any(map(_is_kernel, value.values()))
    return any(base.__name__ in _KERNEL_TYPES for base in type(value).__mro__)


def _is_class_here(value, module):
    return isinstance(value, type) and value.__module__ == module.__name__


def _is_function_of(file, value):
    plain = isinstance(value, types.FunctionType)
    return plain and any(os.path.realpath(code.co_filename) == file for code in _codes(value))


def _codes(value, depth=0):
    """Yield the code of a function and of those it wraps, or of a class's methods."""
    if isinstance(value, type):
        for one in vars(value).values():
            if not isinstance(one, type):
                yield from _codes(getattr(one, "__func__", one), depth + 1)
    elif isinstance(value, types.FunctionType) and depth < 8:
        yield value.__code__
        for cell in value.__closure__ or ():
            try:
                found = cell.cell_contents
            except ValueError:  # an empty cell
                continue
            if isinstance(found, types.FunctionType):
                yield from _codes(found, depth + 1)


def _names(code):
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
