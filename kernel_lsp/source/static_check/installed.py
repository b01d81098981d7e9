"""Reads where installed modules are, and what they have imported for themselves, from their files: nothing is imported.

A module of torch that imports another one, under any name, would give host code all of that.
"""

import ast
import importlib.util
import re
import textwrap
from functools import lru_cache
from pathlib import Path

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+[\w.]+[ \t]+import[ \t]*(?:\([^)]*\)|[^\n(]+)|import[ \t]+[^\n]+)", re.MULTILINE
)


def is_installed(path: tuple[str, ...]) -> bool:
    """Return True if a dotted name is a module of an installed package."""
    return _file(path) is not None


def source_of(path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the dotted name that a module imported a name from; None if it did not, or from its own package."""
    found = _imports(path[:-1]).get(path[-1]) if len(path) > 1 else None
    return found if found is not None and found[:1] != path[:1] else None


@lru_cache(maxsize=256)
def _file(path: tuple[str, ...]) -> Path | None:
    if not path:
        return None
    try:
        found = importlib.util.find_spec(path[0])  # of a top-level name, so nothing is imported
    except (ImportError, ValueError):
        return None
    for folder in (found.submodule_search_locations or ()) if found else ():
        base = Path(folder, *path[1:])
        for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if file.is_file():
                return file
    return None


@lru_cache(maxsize=256)
def _imports(module: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the names that a module's file binds by absolute imports -> where they come from."""
    file = _file(module)
    found: dict[str, tuple[str, ...]] = {}
    for match in _IMPORT.finditer(file.read_text(encoding="utf-8", errors="replace")) if file else ():
        try:
            statement = ast.parse(textwrap.dedent(match[0])).body[0]
        except (SyntaxError, IndexError):  # words of a docstring
            continue
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                path = tuple(alias.name.split("."))
                found[alias.asname or path[0]] = path if alias.asname else path[:1]
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for alias in statement.names:
                found[alias.asname or alias.name] = (*statement.module.split("."), alias.name)
    return found
