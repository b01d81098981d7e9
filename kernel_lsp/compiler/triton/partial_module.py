"""Modules that execute only the statements a name needs, so that a kernel loads without its file's host code.

Worker processes only. A kernel needs its imports, its constants and the functions it calls; its file may also import
packages that are not installed, run a benchmark, or want a GPU. A name's value is computed when it is first asked for:
the top-level statements that bind it are executed, after those that bind the names they use. Imports of files of the
same project are partial modules too: no package's `__init__` is executed for one function in it. Kernels that stand in
a `try` have its other statements executed one by one as well, since its handlers would hide why one failed.

A name from a module that is not installed is `Unknown`: code that does not need its value still loads. If a top-level
`if` tests such a name, the first branch that can be executed is taken, and that is recorded as a guess.
"""

import __future__

import ast
import builtins
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from kernel_lsp.compiler.triton.unknown import Unknown, UnknownError
from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.python import names_read, python_ast
from kernel_lsp.source.triton_uses import dotted
from kernel_lsp.workload.execute import blame
from kernel_lsp.workload.imports import LIBRARIES, show_lines

_CHANGES = frozenset(("append", "extend", "update", "insert", "add", "setdefault"))
_MAIN = ast.dump(ast.parse("__name__ == '__main__'", mode="eval").body)


class PartialModule:
    """A file whose top-level statements are executed when a name that they bind is asked for.

    Args:
        path: the file.
        text: its text, which need not be what is on disk.
        files: all partial modules by path; this one adds itself.

    Raises:
        WorkloadError: the file cannot be parsed.
    """

    def __init__(self, path: Path, text: str, files: "dict[Path, PartialModule] | None" = None) -> None:
        self._path, self._files = path, {} if files is None else files
        self._module = ModuleType(f"{path.stem}_in_part_{len(self._files)}")
        # A plain module, because kernels in Triton may refer to no other type.
        self._names = vars(self._module)
        self._names |= {
            "__getattr__": self.value,
            "__file__": str(path),
            "__builtins__": vars(builtins) | {"__import__": self._import},
        }
        self._files[path] = self
        show_lines(text, path)
        sys.modules[self._module.__name__] = self._module  # dataclasses and Triton look for it there
        with blame(path, "it cannot be parsed"):
            tree = python_ast(text)
        inner = _flat(tree.body, lambda node: isinstance(node, ast.Try) and _defines_kernels(node.body))
        self._statements = [n for n in inner if not (isinstance(n, ast.If) and ast.dump(n.test) == _MAIN)]
        self._statements += _around_kernels(self._statements)
        future = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
        self._flags = sum(getattr(__future__, one.name).compiler_flag for node in future for one in node.names)
        self._binding: dict[str, list[int]] = {}
        for at, node in enumerate(self._statements):
            for name in _bound(node):
                self._binding.setdefault(name, []).append(at)
        self._begun: set[int] = set()
        self._called_later: list[int] = []
        self._broken: dict[int, WorkloadError] = {}
        self._guessed: dict[int, str] = {}

    def value(self, name: str) -> Any:
        """Return the value of a name of the file, or a module beside a package's `__init__`.

        Raises:
            WorkloadError: a statement that the name needs raises; at its line.
            AttributeError: there is no such name.
        """
        if name not in self._names and not (name.startswith("__") and name not in self._binding):
            self._need(name)
            self._settle()
            self._need(name)  # raises the error that settling found
        if name in self._names:
            return self._names[name]
        beside = _file_of(self._path.parent / name) if self._path.name == "__init__.py" else None
        if beside is None:
            raise AttributeError(f"module '{self._path.stem}' has no attribute '{name}'")
        return self._in_part(beside)

    def undecorated(self, name: str) -> Any:
        """Return a Triton function with `jit` as its only decorator, for use when the others cannot be executed.

        Raises:
            WorkloadError: it is not a function that `jit` decorates, or what else it needs raises.
        """
        for at in self._binding.get(name, ()):
            node = self._statements[at]
            kept = [d for d in getattr(node, "decorator_list", ()) if dotted(d).rpartition(".")[2] == "jit"]
            if isinstance(node, ast.FunctionDef) and kept:
                bare = copy(node)
                bare.decorator_list = kept
                self._statements[at] = bare
                self._begun.discard(at)
                self._broken.pop(at, None)
                self._names.pop(name, None)
                return self.value(name)
        raise WorkloadError("it is not a function that `jit` decorates", self._path)

    @property
    def guesses(self) -> tuple[str, ...]:
        """Return a sentence for each `if` that was guessed in any partial module, with the missing module."""
        return tuple(guess for one in self._files.values() for guess in one._guessed.values())

    def missing_imports(self) -> list[tuple[int, str]]:
        """Return line (from 1) and module name of the file's imports of modules that are not installed.

        Only those count that stand at the top level by themselves: an `if` or `try` around one may be there for that.
        """
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

    def is_bound_anywhere(self, name: str) -> bool:
        """Return True if any partial module binds the name, or may through `import *`."""
        return any(name in one._binding or "*" in one._binding for one in self._files.values())

    def is_bound(self, name: str) -> bool:
        """Return True if a top-level statement of the file binds the name."""
        return name in self._binding

    def _need(self, name: str, before: int | None = None) -> None:
        """Execute the statements that bind the name, above `before` if given; if there are none, every `import *`."""
        for at in self._binding.get(name, () if hasattr(builtins, name) else self._binding.get("*", ())):
            if before is None or at < before:
                self._run(at)

    def _run(self, at: int) -> None:
        if at in self._broken:
            raise self._broken[at]
        if at in self._begun:
            return
        self._begun.add(at)
        node = self._statements[at]
        try:
            for name in _used_at_once(node):
                self._need(name, at)
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _calls_something(node):
                self._settle(at)
            try:
                self._execute(node)
            except WorkloadError:
                if not (calls := self._calls_above(at)):
                    raise
                for call in calls:
                    self._run(call)
                self._execute(node)
            self._called_later.append(at)
        except WorkloadError as error:
            self._broken[at] = self._root_of(error)
            raise self._broken[at] from error.__cause__

    def _calls_above(self, at: int) -> list[int]:
        """Return the calls above a statement that use names it uses and may modify them: `library.set_up()`.

        They are executed only after something failed without them, since most such calls are a script's main program.
        """
        used = {*_used_at_once(self._statements[at])}
        above = [other for other in range(at) if other not in self._begun and _is_call(self._statements[other])]
        return [other for other in above if used & {*_used_at_once(self._statements[other])}]

    def _execute(self, node: ast.stmt) -> None:
        """Execute a statement, as far as missing modules allow."""
        try:
            with blame(self._path, "it raised while its kernels were loaded"):
                code = compile(ast.Module([node], []), str(self._path), "exec", self._flags, dont_inherit=True)
                exec(code, self._names)
        except WorkloadError as error:
            cause = error.__cause__
            if isinstance(cause, UnknownError) and isinstance(node, ast.If):
                self._execute_either(node, cause)
            elif isinstance(cause, ImportError) and self._is_of_others(node):
                self._import_what_is_there(node, error)
            else:
                raise

    def _execute_either(self, node: ast.If, why: UnknownError) -> None:
        """Execute the first branch of an `if` that can be executed, and record the guess."""
        for branch, how in ((node.body, "holds"), (node.orelse, "does not hold")):
            try:
                for inner in branch:
                    self._execute(inner)
            except WorkloadError:
                continue
            place = f"{self._path.name}, line {node.lineno}"
            self._guessed[node.lineno] = f"the test at {place} {how}, for which `{why.module}` is missing"
            return
        raise why.origin

    def _is_of_others(self, node: ast.stmt) -> TypeGuard[ast.Import | ast.ImportFrom]:
        """Return True if a statement imports, by name, from outside this project."""
        match node:
            case ast.Import(names=names):
                return not any(self._find(one.name, 0) for one in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                return names[0].name != "*" and self._find(module, 0) is None
            case _:
                return False

    def _import_what_is_there(self, node: ast.Import | ast.ImportFrom, error: WorkloadError) -> None:
        """Import name by name; bind those that cannot be imported to `Unknown`."""
        if len(node.names) == 1:
            (name,) = node.names
            self._names[name.asname or name.name.partition(".")[0]] = Unknown(error)
        for name in node.names if len(node.names) > 1 else ():
            one = copy(node)
            one.names = [name]
            self._execute(one)

    def _root_of(self, error: WorkloadError) -> WorkloadError:
        """Return the error that kept a name from being bound, if `error` only says that it is undefined."""
        if isinstance(error.__cause__, UnknownError):
            return error.__cause__.origin
        name = error.__cause__.name if isinstance(error.__cause__, NameError) else None
        broken = (one._broken.get(at) for one in self._files.values() for at in one._binding.get(name or "", ()))
        return next((root for root in broken if root is not None), error)

    def _settle(self, before: int | None = None) -> None:
        """Execute all that functions need when they are called; only statements above `before` if given.

        Failures that concern only host functions are ignored.
        """
        settled: set[int] = set()
        while left := [at for at in self._called_later if at not in settled]:
            settled.add(at := left[-1])
            for name in _used_when_called(self._statements[at]):
                try:
                    self._need(name, before)
                    value = self._names.get(name)
                    broken = value.origin if isinstance(value, Unknown) else None
                except WorkloadError as error:
                    broken = error
                if broken is not None and self._is_jit(at):
                    self._broken.setdefault(at, broken)
        if before is None:
            self._called_later = [at for at in self._called_later if at not in settled]

    def _is_jit(self, at: int) -> bool:
        """Return True if a function is a Triton kernel, by a decorator or by a later call of `jit`."""
        node = self._statements[at]
        if not isinstance(node, ast.FunctionDef):
            return False
        calls = [s for b in self._binding[node.name] if isinstance(s := self._statements[b], ast.Assign)]
        return any("jit" in ast.unparse(one) for one in (*node.decorator_list, *calls))

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - as Python calls it
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import like `__import__`, but load files of this project as partial modules."""
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
        """Yield the names that `import *` brings, except those that fail to load."""
        for name in [name for name in self._binding if name.isidentifier() and not name.startswith("_")]:
            try:
                self.value(name)
            except (WorkloadError, AttributeError):
                continue
            yield name

    def _find(self, name: str, level: int) -> Path | None:
        """Return the file of a module of this project; None for other modules."""
        parts = [part for part in name.split(".") if part]
        if level:
            return _file_of(self._path.parents[level - 1].joinpath(*parts))
        if parts[0] in sys.stdlib_module_names or parts[0] in LIBRARIES:
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
    """Return the file imported for a path without suffix; the missing `__init__` path of a namespace package."""
    for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
        if path.is_file():
            return path
    return stem / "__init__.py" if stem.is_dir() and any(stem.glob("*.py")) else None


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a top-level statement binds or modifies; `*` for `import *`."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Expr):
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=change)) if change in _CHANGES:
                return {name}
            case _:
                return set()
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


def _around_kernels(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of functions that define kernels, as those that are built only where there is a GPU, and
    kernels that are static methods of one class.

    Left out are those that bind a name of the file, and those whose names depend on more than the file: they are
    executed only when a kernel asks for one, and fail at the arguments of the function.
    """
    taken = {name for node in statements for name in _bound(node)}
    found: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.FunctionDef) and not _is_marked(node):
            inner = [*_flat(node.body, lambda one: isinstance(one, (ast.With, ast.Try)))]
            if _defines_kernels(inner):
                found += [one for one in inner if (names := _bound(one)) and taken.isdisjoint(names)]
    held = [one for node in statements if isinstance(node, ast.ClassDef) for one in _static_kernels(node)]
    alike = Counter(one.name for one in held)
    return [*found, *(one for one in held if one.name not in taken and alike[one.name] == 1)]


def _static_kernels(holder: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Yield the kernels among a class's static methods, as functions of the file."""
    for node in holder.body:
        if isinstance(node, ast.FunctionDef) and _is_marked(node):
            free = copy(node)
            free.decorator_list = [one for one in node.decorator_list if dotted(one) != "staticmethod"]
            if len(free.decorator_list) < len(node.decorator_list):
                yield free


def _flat(statements: Sequence[ast.stmt], opens: Callable[[ast.stmt], bool]) -> Iterator[ast.stmt]:
    """Yield statements, those within the `with` and `try` blocks that `opens` holds for by themselves."""
    for node in statements:
        if isinstance(node, (ast.With, ast.Try)) and opens(node):
            yield from _flat(node.body, opens)
        else:
            yield node


def _defines_kernels(statements: Sequence[ast.stmt]) -> bool:
    """Return True if one of the statements is a function that a decorator makes Triton's."""
    return any(isinstance(one, ast.FunctionDef) and _is_marked(one) for one in statements)


def _is_marked(function: ast.FunctionDef) -> bool:
    """Return True if a decorator makes a function Triton's."""
    marks = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return any(dotted(mark).rpartition(".")[2] == "jit" for mark in marks)


def _is_call(node: ast.stmt) -> bool:
    """Return True if a statement is a call whose result is not used."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and its nodes, without the bodies of functions and classes."""
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _own_scope(child)


def _calls_something(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a decorator's argument is computed by a call, as in `autotune(configs=made())`."""
    arguments = [a for d in function.decorator_list if isinstance(d, ast.Call) for a in (*d.args, *d.keywords)]
    return any(isinstance(inner, ast.Call) for argument in arguments for inner in ast.walk(argument))


def _used_at_once(node: ast.AST) -> list[str]:
    """Return the names read when a statement is executed; for a function those outside its body."""
    if isinstance(node, ast.ClassDef):
        inner = [name for one in node.body for name in _used_at_once(one)]
        return list(dict.fromkeys([*names_read(*node.bases, *node.keywords, *node.decorator_list), *inner]))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        defaults = [default for default in (*node.args.defaults, *node.args.kw_defaults) if default]
        annotations = [one for one in (*(argument.annotation for argument in arguments), node.returns) if one]
        return names_read(*node.decorator_list, *defaults, *annotations)
    return names_read(node)


def _used_when_called(node: ast.AST) -> list[str]:
    """Return the global names that functions read when they are called."""
    if isinstance(node, ast.ClassDef):
        return list(dict.fromkeys(name for one in node.body for name in _used_when_called(one)))
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    own = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    shared = {name for n in ast.walk(node) if isinstance(n, ast.Global) for name in n.names}
    return [name for name in names_read(*node.body) if name not in own or name in shared]
