"""Runs first in every Python process of a captured program: starts the recorder once Triton is imported, or what
builds torch's extensions.

Standard library only. It runs the `sitecustomize` that it hides first, and raises nothing. In a shadow run `shadow.py`
takes the recorder's place. Where the program is to run on the emulator, it lets Kernel LSP place it once torch is
imported.
"""

import contextlib
import importlib.abc
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_EXTENSIONS = "torch.utils.cpp_extension"
_WATCHED = {
    "triton.runtime.jit": ("hooks", "watch_functions"),
    "triton.runtime.interpreter": ("hooks", "watch_interpreter"),
    "triton.runtime.autotuner": ("hooks", "watch_autotuner"),
    "torch._inductor.runtime.triton_heuristics": ("hooks", "watch_generated"),
    _EXTENSIONS: ("extensions", "watch_extensions"),
    "torch": ("extensions", "watch_built"),
}


def _run_hidden():
    for entry in sys.path:
        path = os.path.join(entry, "sitecustomize.py")
        if os.path.abspath(entry or ".") != _HERE and os.path.isfile(path):
            spec = importlib.util.spec_from_file_location("_hidden_sitecustomize", path)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


def _hook_for(name):
    if name == "torch" and os.environ.get("KERNEL_LSP_EMULATE"):
        return _emulate
    part, function = _WATCHED[name]
    for needed in ("seen", "calls", "launches", "recorder", "events", "hooks"):
        _part(needed)
    return getattr(_part(part), function)


def _emulate(_):
    try:
        importlib.import_module("kernel_lsp.runner.workers.emulated_program").begin()
        if _recorded:  # it has replaced what was watched
            _hook_for(_EXTENSIONS)(sys.modules[_EXTENSIONS])
    except Exception as error:
        said = f"{sys.executable} cannot use the emulator ({type(error).__name__}: {error})"
        path = os.path.join(os.environ["KERNEL_LSP_CAPTURE"], f"{os.getpid()}.unable")
        with open(path, "w", encoding="utf-8") as file:
            file.write(said)


def _part(part):
    name = f"_kernel_lsp_{part}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(_HERE, f"{part}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class _Afterwards(importlib.abc.MetaPathFinder):
    """Calls what waits for a module once that has been executed; other imports cost one look-up."""

    def __init__(self, wanted):
        self.wanted = set(wanted)

    def find_spec(self, name, path=None, target=None):
        if name not in self.wanted:
            return None
        self.wanted.discard(name)
        spec = importlib.util.find_spec(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            if module.__name__ != name:  # pytest's loader is one for all modules
                return
            with contextlib.suppress(Exception):  # a capture never stops the program
                _hook_for(name)(module)

        spec.loader.exec_module = exec_module
        return spec


class _Finders(list):
    """A path of finders whose first one stays so: pytest puts one before it that finds the modules waited for, too."""

    def insert(self, index, finder):
        super().insert(index or 1, finder)


_run_hidden()
if os.environ.get("KERNEL_LSP_CAPTURE"):
    _rank, _wanted_rank = os.environ.get("RANK", ""), os.environ["KERNEL_LSP_CAPTURE_RANK"]
    _recorded = _rank in ("", _wanted_rank) or _wanted_rank == "all"
    if _recorded and os.environ.get("KERNEL_LSP_SHADOW_FILE"):
        _recorded = False  # what would be recorded are the variant's calls
        with contextlib.suppress(Exception):
            _part("shadow").start()
    _wanted = (*(_WATCHED if _recorded else ()), *(("torch",) if os.environ.get("KERNEL_LSP_EMULATE") else ()))
    if _wanted:
        sys.meta_path = _Finders((_Afterwards(_wanted), *sys.meta_path))
