"""The statements of Python files; expressions, most of a tree, hold no imports, classes or docstrings of ours."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path


@cache
def statements_of(path: Path) -> tuple[ast.AST, ...]:
    """Return a file's module and all statements in it, however deep; the file is read once."""
    module = ast.parse(path.read_text())
    return module, *statements(module.body)


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield these statements and those below them."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, part, ())
            yield from statements(found if isinstance(found, list) else ())
