"""Finds what a Python file imports: local files, a change in which can change what it does, and installed packages."""

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import import_folders
from kernel_lsp.source.module_name import module_name
from kernel_lsp.source.python import is_python, names_read, python_ast, python_ast_if_any


def local_imports(
    source: SourceFile, folders: Sequence[Path], installed: Collection[str] | None
) -> tuple[SourceFile, ...] | None:
    """Return the files in `folders` that `source` imports, directly or not, in the order of their paths.

    Args:
        source: a Python file.
        folders: where Python looks for modules, installed packages apart.
        installed: names of packages, `torch` or `cuda.bindings`, whose content the caller knows by their versions;
            None where others than those in `folders` do not matter.

    Returns:
        The files; None where that cannot be told: it does not parse, or it imports a module that is neither in
        `folders` nor in `installed` nor in Python's own library.
    """
    found: dict[Path, SourceFile] = {}
    pending = [source]
    while pending:
        file = pending.pop()
        try:
            imported = [(_start(file.path.parent, level), name) for level, name in _all_imports(file.text)]
        except SyntaxError:
            return None
        called = module_name(file.path, file.text)
        of_package = ((called.root, called.package),) if called.needs_package else ()
        for package, name in (*imported, *of_package):
            paths = [path for folder in ((package,) if package else folders) for path in files_of(folder, name)]
            known = (
                package is not None or installed is None or any(f"{name}.".startswith(f"{one}.") for one in installed)
            )
            if not paths and not known and name.partition(".")[0] not in sys.stdlib_module_names:
                return None
            for path in paths:
                if path in found or path == source.path:
                    continue
                try:
                    found[path] = SourceFile(path, path.read_text(encoding="utf-8"))
                except (OSError, UnicodeDecodeError):
                    return None
                pending.append(found[path])
    return tuple(found[path] for path in sorted(found))


def foreign_imports(*files: SourceFile) -> tuple[str, ...]:
    """Return the modules, neither local nor Python's own, that loading Python files imports as far as their texts tell.

    Imports in local files that they import count too, those within functions do not. In the order of the texts; empty
    where a text does not parse.
    """
    found: dict[str, None] = {}
    for file in filter(lambda file: is_python(file.path), files):
        folders = folders_of(file)
        for text in (file, *(local_imports(file, folders, None) or ())):
            if (tree := python_ast_if_any(text.text)) is None:
                continue
            for level, name in _imports(_when_loaded(tree)):
                own = level > 0 or name.partition(".")[0] in sys.stdlib_module_names
                if not own and not any(files_of(folder, name) for folder in folders):
                    found[name] = None
    return tuple(found)


def folders_of(*files: SourceFile) -> list[Path]:
    """Return the folders in which imports of these files are looked up besides Python's own, first match first."""
    found = (folder for file in files for folder in import_folders(file.path, module_name(file.path, file.text)))
    return list(dict.fromkeys(found))


def _when_loaded(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a module outside of functions, and outside of what only runs as a program or is for types."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        yield node
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.If) and {"TYPE_CHECKING", "__name__"} & set(names_read(node.test)):
            inner = list(node.orelse)
        pending += [each for each in inner if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]


@lru_cache(maxsize=256)  # a kernel's neighbours are asked for anew with each of its candidates
def _all_imports(text: str) -> tuple[tuple[int, str], ...]:
    return tuple(_imports(ast.walk(python_ast(text))))


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield of each import by how many levels it is relative, 0 if it is not, and its dotted name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.level, ".".join(filter(None, (node.module, alias.name)))


def _start(folder: Path, level: int) -> Path | None:
    """Return the folder that an import of a file in `folder` starts from; None for one that is not relative."""
    return folder.joinpath(*[".."] * (level - 1)).resolve() if level else None


def files_of(folder: Path, name: str) -> list[Path]:
    """Return the files in `folder` that importing `name` executes."""
    files: list[Path] = []
    for part in name.split("."):
        package, module = folder / part / "__init__.py", folder / f"{part}.py"
        if package.is_file():
            files.append(package)
        elif module.is_file():
            files.append(module)
            break
        folder /= part
    return files
