"""Docstrings say what is returned or done: none begins with a question, none ends in a pronoun without a noun."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.documentation.statements import statements_of

ROOT = Path(__file__).parents[3]
PACKAGES = {path.name: path for path in (ROOT / "kernel_lsp").glob("*/") if (path / "__init__.py").exists()}
ROOMS = {**PACKAGES, "server": ROOT / "server"}
RIDDLE = re.compile(r"(?:^|[.;:!?] )(?:What|Whether)\b|\b(?:of|to) it\.(?: |$)|\bif so\.(?: |$)")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_docstrings_are_plain(room: str):
    assert [f"{place}: {text}" for place, text in docstrings(ROOMS[room]) if RIDDLE.search(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        *("What a candidate is.", "Whether it runs.", "A kernel. What is left out stays.", "Return what is of it."),
        *("Say why it cannot be done, if so.", "A file, and all that belongs to it. Frozen."),
    ],
)
def test_riddles_are_recognised(text: str):
    assert RIDDLE.search(text)


def test_plain_text_is_none():
    assert not RIDDLE.search("Return what the compiler says about a kernel; it may be empty, or whether it ran at all.")


def docstrings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text, on one line, of each docstring below a folder."""
    for path in sorted(folder.rglob("*.py")):
        for node in statements_of(path):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}:{node.body[0].lineno}", " ".join(text.split())
