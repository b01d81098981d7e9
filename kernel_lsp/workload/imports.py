"""Imports texts in place of files: an import of such a file yields the text, executed once. Runner processes only.

A kernel under judgement has the name and place of the user's file, but may differ from the file on disk. Its own
package may import it, and so may a workload, under any name. All must get the one text that is judged: a second copy of
a kernel would have its source looked up in the wrong text.
"""

import importlib
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from io import StringIO
from pathlib import Path
from types import ModuleType

from kernel_lsp.source.files import import_folders
from kernel_lsp.source.language import language_packages
from kernel_lsp.source.module_name import ModuleName, module_name

LIBRARIES = ("kernel_lsp", "numpy", *language_packages())
"""Packages that workers import themselves: never a user's copy, such as a clone of Triton without compiled parts."""


@dataclass(slots=True)
class StandIn(Loader):
    """A text that replaces a file, and the module made from that text."""

    text: str
    path: Path
    module: ModuleType | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the existing module, if there is one, whatever its name."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Execute the text, unless that was or is being done."""
        if self.module is module:
            return
        self.module = module
        try:
            exec(compile(self.text, str(self.path), "exec"), module.__dict__)
        except BaseException:
            self.module = None
            raise

    def get_source(self, _name: str) -> str:
        """Return the text, for callers that ask the loader instead of reading the file."""
        return self.text


class _Finder(MetaPathFinder):
    """Finds files that are replaced by a text, and the packages that contain them."""

    def __init__(self) -> None:
        self._files: dict[str, StandIn] = {}
        self._stems: set[str] = set()
        self._packages: dict[str, Path] = {}

    def add(self, text: str, path: Path, called: ModuleName) -> StandIn:
        """Make a text replace a file, unless it already does; return its loader.

        Modules made of another text are removed from `sys.modules`, and so is a package that may have imported them.
        """
        real = os.path.realpath(path)
        known = self._files.get(real)
        if known is not None and known.text == text and linecache.cache.get(str(path)):
            return known
        _forget_modules_of(real)
        show_lines(text, path)
        self._stems.add(called.name.rpartition(".")[2])
        if called.package:
            self._packages.setdefault(called.top.name, called.top)
        self._files[real] = StandIn(text, path)
        return self._files[real]

    def forget(self, path: Path) -> None:
        """Let a file be imported from disk again; modules made of its replacement are removed from `sys.modules`."""
        real = os.path.realpath(path)
        if self._files.pop(real, None) is not None:
            _forget_modules_of(real)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that this finder replaces or provides; None for any other."""
        folder = self._packages.get(fullname) if path is None else None
        if folder is not None:
            spec = _package_spec(fullname, folder)
        elif fullname.rpartition(".")[2] in self._stems:
            others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
            spec = next((found for found in others if found is not None), None)
        else:
            return None
        if spec is not None and spec.origin is not None and (file := self._files.get(os.path.realpath(spec.origin))):
            spec.loader = file
        return spec


_finder = _Finder()


def import_text(text: str, path: Path, *, afresh: bool = False) -> ModuleType:
    """Return `text` executed as the module that would be imported from `path`; raises whatever it raises.

    The text may differ from the file on disk. Tracebacks and `inspect.getsource` (which Triton compiles from) see it
    under its real name and line numbers, and so does every import of the file. `afresh` executes it once more even if
    that was done before, for when its surroundings have changed.
    """
    if afresh:
        _finder.forget(path)
    standing, called = _announced(text, path)
    if standing.module is None and called.needs_package:
        _import_package(called)
    if standing.module is None:  # else its package has imported it
        within = [str(path.parent)] if path.name == "__init__.py" else None
        spec = spec_from_file_location(called.name, path, loader=standing, submodule_search_locations=within)
        assert spec is not None, "a loader was given"
        _execute(spec, standing)
    assert standing.module is not None
    return standing.module


def announce(text: str, path: Path) -> None:
    """Make a text replace its file from now on; the first import executes it."""
    _announced(text, path)


def _announced(text: str, path: Path) -> tuple[StandIn, ModuleName]:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    called = _free(module_name(path, text), path)
    sys.path += [folder for folder in map(str, import_folders(path, called)) if folder not in sys.path]
    return _finder.add(text, path, called), called


def show_lines(text: str, path: Path) -> None:
    """Make tracebacks and `inspect.getsource` show the lines of a text for a file, ended as Python reads them."""
    linecache.cache[str(path)] = (len(text), None, StringIO(text, newline=None).readlines(), str(path))


def broken_packages(path: Path) -> list[tuple[Path, BaseException]]:
    """Return the `__init__.py` files above `path` that raised when they were imported, with their errors."""
    return [(init, error) for init, error in _broken.items() if init.parent in path.parents]


_broken: dict[Path, BaseException] = {}


def _forget_modules_of(real: str) -> None:
    """Remove the modules made of a file, and those in its package, from `sys.modules`."""
    files = [(name, getattr(module, "__file__", None)) for name, module in tuple(sys.modules.items())]
    is_same = _same_as(real)
    made = [name for name, file in files if isinstance(file, str) and name != "__main__" and is_same(file)]
    packages = {name.partition(".")[0] for name in made if "." in name} - set(LIBRARIES)
    for name in tuple(sys.modules):
        if name in made or name.partition(".")[0] in packages:
            del sys.modules[name]


def _same_as(real: str) -> Callable[[str], bool]:
    """Return what says whether a path leads to a real one.

    Asking for the place on disk is faster than resolving the path, for there are thousands of modules.
    """
    try:
        place = _place(real)
    except OSError:  # it is not on disk
        return lambda file: os.path.realpath(file) == real

    def is_same(file: str) -> bool:
        try:
            return _place(file) == place
        except OSError:
            return False

    return is_same


def _place(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116 - many times, quickly
    return found.st_dev, found.st_ino


def _execute(spec: ModuleSpec, standing: StandIn) -> None:
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        standing.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    _bind(spec.name, module)


def _import_package(called: ModuleName) -> None:
    """Import the packages that contain a module, outermost first.

    One whose `__init__.py` raises is replaced by a bare package: a kernel may not use what the whole library needs,
    such as a GPU at import time.
    """
    folder, name = called.root, ""
    for part in called.package.split("."):
        folder, name = folder / part, f"{name}.{part}".lstrip(".")
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            _broken[folder / "__init__.py"] = error
            package = module_from_spec(_bare(name, folder))
            sys.modules[name] = package
            _bind(name, package)


def _bind(name: str, module: ModuleType) -> None:
    """Make a module an attribute of its package, as an import does."""
    package, _, last = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], last, module)


def _package_spec(name: str, folder: Path) -> ModuleSpec:
    init = folder / "__init__.py"
    found = spec_from_file_location(name, init, submodule_search_locations=[str(folder)]) if init.is_file() else None
    return found or _bare(name, folder)


def _bare(name: str, folder: Path) -> ModuleSpec:
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return spec


def _free(called: ModuleName, path: Path) -> ModuleName:
    """Return a module name that clashes with no imported one: `copy.py` must not become the `copy` of torch.

    Files in another copy of an imported package, such as Triton's own, get a name outside any package.
    """
    top = called.name.partition(".")[0]
    taken = sys.modules.get(top)
    if called.package:
        folders = [os.path.realpath(folder) for folder in getattr(taken, "__path__", ())]
        if os.path.realpath(called.top) in folders or (taken is None and top not in LIBRARIES):
            return called
        called = ModuleName(called.name.rpartition(".")[2], path.parent, needs_package=False)
        taken = sys.modules.get(called.name)
    file = getattr(taken, "__file__", None)
    if taken is None or (isinstance(file, str) and os.path.realpath(file) == os.path.realpath(path)):
        return called
    return ModuleName(f"{called.name}_", called.root, called.needs_package)
