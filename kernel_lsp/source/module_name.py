"""Derives a Python file's module name from its place: the package that it belongs to, and that package's folder.

By the rules of pytest: folders above a file belong to its package for as long as they have an `__init__.py`. Folders
without one do too, as far up as the file's own relative imports reach.
"""

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernel_lsp.source.python import python_ast_if_any

_INIT = "__init__.py"


@dataclass(frozen=True, slots=True)
class ModuleName:
    """A file's module name.

    Attributes:
        name: dotted, such as `liger_kernel.ops.rms_norm`; without a dot where the file belongs to no package.
        root: the folder that the first part of the name lies in.
        needs_package: True if it imports from its own package, by a relative name or by the full one.
    """

    name: str
    root: Path
    needs_package: bool

    @property
    def package(self) -> str:
        """Return the name of the package it belongs to; empty if there is none."""
        return self.name.rpartition(".")[0]

    @property
    def top(self) -> Path:
        """Return the outermost folder of the package; the file's own folder if there is none."""
        return self.root / self.name.partition(".")[0] if "." in self.name else self.root


def module_name(path: Path, text: str) -> ModuleName:
    """Return the module name of the file at `path` with this text; text that does not parse imports nothing."""
    levels, tops = _imports(text)
    folder, parts = path.parent, [] if path.name == _INIT else [path.stem.replace(".", "_")]
    reach = max(levels, default=0) - (path.name == _INIT)
    while (folder / _INIT).is_file() or len(parts) <= reach or not parts:
        if folder == folder.parent or "." in folder.name:  # no module can have such a name
            break
        parts.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(parts) or path.stem.replace(".", "_")
    return ModuleName(name, folder, "." in name and (bool(levels) or parts[0] in tops))


@lru_cache(maxsize=32)  # the same few files are asked about many times a verdict
def _imports(text: str) -> tuple[frozenset[int], frozenset[str]]:
    """Return the levels of its relative imports, and the first parts of the names in its other imports."""
    levels: set[int] = set()
    tops: set[str] = set()
    tree = python_ast_if_any(text)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            tops |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            levels.add(node.level)
        elif isinstance(node, ast.ImportFrom) and node.module:
            tops.add(node.module.partition(".")[0])
    return frozenset(levels), frozenset(tops)
