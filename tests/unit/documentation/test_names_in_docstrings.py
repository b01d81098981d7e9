"""A module, or a name in one, that a docstring refers to is there under that name."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from kernel_lsp.config.load import options
from tests.unit.documentation.statements import statements, statements_of
from tests.unit.documentation.test_docstrings import PACKAGES, ROOMS, ROOT

QUOTED = re.compile(r"`[^`]+`")
DOTTED = re.compile(r"(?<![\w./])[a-z_]\w*(?:\.\w+)+(?!/)")
OTHERS = {"kernel_lsp.commands": "a group of entry points in pyproject.toml", "config.json": "a file of a model"}
"""Names that begin like a package of ours and are something else; settings are as well."""


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_docstrings_name_what_is_there(room: str) -> None:
    assert [f"{place}: {name}" for place, name in named_in(ROOMS[room]) if not is_there(name)] == []


def test_names_are_looked_up_in_modules_and_classes() -> None:
    there = ("judge", "judge.verdict", "kernel_lsp.judge.verdict.Outcome", "judge.verdict.Outcome.SLOWER")
    assert [name for name in there if not is_there(name)] == []
    gone = ("build.opcodes", "judge.verdict.Outcom", "judge.verdict.Outcome.SLOW", "kernel_lsp.kinds.job")
    assert [name for name in gone if is_there(name)] == []


def named_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the name of each reference to a package of ours in the docstrings below a folder."""
    for path in sorted(folder.rglob("*.py")):
        for node in statements_of(path):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    names = (name for quoted in QUOTED.findall(text) for name in DOTTED.findall(quoted))
                    for name in names:
                        ours = name.partition(".")[0] in {"kernel_lsp", *PACKAGES}
                        if ours and name not in OTHERS and name not in options():
                            yield f"{path.relative_to(ROOT)}:{node.lineno}", name
                case _:
                    pass


@cache
def is_there(name: str) -> bool:
    """Return True if a dotted name leads to a package, a module, or a name that one binds, found without imports."""
    parts = name.removeprefix("kernel_lsp.").split(".")
    place = ROOT / "kernel_lsp"
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    module = place / f"{parts[0]}.py" if parts else place
    if module.is_file():
        parts = parts[1:]
    else:
        module = place / "__init__.py"
    return not parts or leads_to(parts, statements_of(module)) if module.is_file() else not parts


def leads_to(parts: list[str], body: Iterable[ast.AST]) -> bool:
    """Return True if a name is bound in these statements, and those after it in the bodies of classes."""
    first, *rest = parts
    for node in body:
        match node:
            case ast.ClassDef(name=name) if name == first:
                return not rest or leads_to(rest, statements(node.body))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name == first:
                return not rest
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if name == first:
                return not rest
            case ast.ImportFrom(names=names) if any((one.asname or one.name) == first for one in names):
                return True
            case _:
                pass
    return False
