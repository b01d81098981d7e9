"""Modules of which only what is asked for is executed, so that a kernel is loaded without its file's host code.

Worker processes only. A kernel needs its imports, its constants and the functions it calls; its file may also import
packages that are not installed, run a benchmark, or want a GPU. A name's value is made when it is first asked for: the
statements at the top of the file that bind it are executed, after those that bind what they use. Imports that lead to
files of the same project are such modules again: no package's `__init__` is executed for one function in it.
"""

import ast
import builtins
import linecache
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.python import python_ast
from kernel_lsp.workload.execute import blame

_INSTALLED = frozenset(("torch", "triton", "numpy"))  # a clone of one of these holds files that import it
_CHANGES = frozenset(("append", "extend", "update", "insert", "add", "setdefault"))
_MAIN = ast.dump(ast.parse("__name__ == '__main__'", mode="eval").body)


class _Module(ModuleType):
    """What user code sees of a file: any name that is asked for is made then."""

    __slots__ = ("_made_by",)  # no name of the file's

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self, "_made_by").value(name)


class PartialModule:
    """A file whose statements are executed as their names are asked for.

    Args:
        path: the file.
        text: its text, which need not be what is on disk.
        files: the modules of this kind that there are, by their files.

    Raises:
        WorkloadError: the file cannot be parsed.
    """

    def __init__(self, path: Path, text: str, files: "dict[Path, PartialModule] | None" = None) -> None:
        self._path, self._files = path, {} if files is None else files
        self._module = _Module(f"{path.stem}_in_part_{len(self._files)}")
        self._module._made_by = self  # pyright: ignore[reportAttributeAccessIssue]
        self._names = vars(self._module)
        self._names |= {"__file__": str(path), "__builtins__": vars(builtins) | {"__import__": self._import}}
        self._files[path] = self
        linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
        sys.modules[self._module.__name__] = self._module  # where dataclasses and Triton look for it
        with blame(path, "it cannot be parsed"):
            tree = python_ast(text)
        self._statements = [n for n in tree.body if not (isinstance(n, ast.If) and ast.dump(n.test) == _MAIN)]
        self._binding: dict[str, list[int]] = {}
        for at, node in enumerate(self._statements):
            for name in _bound(node):
                self._binding.setdefault(name, []).append(at)
        self._begun: set[int] = set()
        self._broken: dict[int, WorkloadError] = {}

    def value(self, name: str) -> Any:
        """The value of a name of the file, or a module beside a package's `__init__`.

        Raises:
            WorkloadError: a statement that the name needs raises; at its line.
            AttributeError: there is no such name.
        """
        if name not in self._names and not (name.startswith("__") and name not in self._binding):
            self._need(name)
        if name in self._names:
            return self._names[name]
        beside = _file_of(self._path.parent / name) if self._path.name == "__init__.py" else None
        if beside is None:
            raise AttributeError(f"module '{self._path.stem}' has no attribute '{name}'")
        return self._in_part(beside)

    def missing_imports(self) -> list[tuple[int, str]]:
        """Lines and names of modules that the file imports whatever happens, and that are not here."""
        found: list[tuple[int, str]] = []
        for node in self._statements:
            match node:
                case ast.Import(names=names):
                    found += [(node.lineno, one.name) for one in names if not self._is_there(one.name, 0)]
                case ast.ImportFrom(module=name, level=level) if not self._is_there(name or "", level):
                    found.append((node.lineno, "." * level + (name or "")))
                case _:
                    pass
        return found

    def _is_there(self, name: str, level: int) -> bool:
        if self._find(name, level) is not None:
            return True
        if level:
            return False
        try:
            return find_spec(name.partition(".")[0]) is not None
        except (ImportError, ValueError):
            return False

    def is_bound(self, name: str) -> bool:
        """Whether a statement at the top of the file binds the name."""
        return name in self._binding

    def _need(self, name: str) -> None:
        """Execute what binds the name; every `import *` where nothing else does."""
        for at in self._binding.get(name, () if hasattr(builtins, name) else self._binding.get("*", ())):
            self._run(at)

    def _run(self, at: int) -> None:
        if at in self._broken:
            raise self._broken[at]
        if at in self._begun:
            return
        self._begun.add(at)
        node = self._statements[at]
        try:
            for name in _used(node):
                self._need_of(node, name)
            with blame(self._path, "it raised while its kernels were loaded"):
                exec(compile(ast.Module([node], []), str(self._path), "exec"), self._names)
        except WorkloadError as error:
            self._broken[at] = error
            raise

    def _need_of(self, node: ast.stmt, name: str) -> None:
        """A name that a statement uses. What only the body of a host function needs may be missing."""
        try:
            self._need(name)
        except WorkloadError:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or _is_jit(node) or name in _used_at_once(node):
                raise

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - as Python calls it
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What `__import__` does, with files of this project in part."""
        found = self._find(name, level)
        if found is None:
            if level:
                raise ModuleNotFoundError(f"No module named '{'.' * level}{name}'")
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if not fromlist:
            return self._in_part(self._find(name.partition(".")[0], level) or found)
        module = self._in_part(found)
        if "*" in fromlist:
            vars(module)["__all__"] = tuple(self._files[found]._public())
        return module

    def _public(self) -> Iterator[str]:
        """The names that `import *` brings, as far as they can be made."""
        for name in [name for name in self._binding if name.isidentifier() and not name.startswith("_")]:
            try:
                self.value(name)
            except (WorkloadError, AttributeError):
                continue
            yield name

    def _find(self, name: str, level: int) -> Path | None:
        """The file of a module of this project; None where it is none."""
        parts = [part for part in name.split(".") if part]
        if level:
            return _file_of(self._path.parents[level - 1].joinpath(*parts))
        if parts[0] in sys.stdlib_module_names or parts[0] in _INSTALLED:
            return None
        for folder in self._path.parents:
            if _file_of(folder / parts[0]) is not None:
                return _file_of(folder.joinpath(*parts))
            if (folder / ".git").exists():
                break
        return None

    def _in_part(self, path: Path) -> ModuleType:
        if path not in self._files:
            with blame(self._path, f"{path.name}, which it imports, cannot be read"):
                text = path.read_text(encoding="utf-8") if path.is_file() else ""
            PartialModule(path, text, self._files)
        return self._files[path]._module


def _file_of(stem: Path) -> Path | None:
    """The file that is imported under a path without its suffix; of a package without `__init__` an empty one."""
    for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
        if path.is_file():
            return path
    return stem / "__init__.py" if stem.is_dir() and any(stem.glob("*.py")) else None


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a file binds or whose value it changes; `*` for `import *`."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Expr):
        call = node.value
        changes = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _CHANGES
        return {call.func.value.id} if changes and isinstance(call.func.value, ast.Name) else set()
    found: set[str] = set()
    for inner in _own_scope(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name.partition(".")[0])
            case _:
                pass
    return found


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and what is under it, but for the insides of functions and classes."""
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _own_scope(child)


def _used(node: ast.AST) -> list[str]:
    """The names that a statement reads, in order."""
    return list(dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name)))


def _used_at_once(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """The names that are read when a function or class is defined, not when it is called."""
    parts: list[ast.AST] = [*node.decorator_list]
    if isinstance(node, ast.FunctionDef):
        parts += [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
        parts += [
            a.annotation for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if a.annotation
        ]
    else:
        parts += [*node.bases, *(statement for statement in node.body if not isinstance(statement, ast.FunctionDef))]
    return {name for part in parts for name in _used(part)}


def _is_jit(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
