"""Modules that a verdict rests on stay small enough to be read, and typed."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "kernel_lsp"
MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_ANY = 400, 60, 40
ROOMS = ("judge", "runner")


def modules(room: str) -> dict[str, str]:
    """Return the text of each module of a room."""
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in (PACKAGE / room).rglob("*.py")}


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_and_no_function_is_long(room: str) -> None:
    found: list[str] = []
    for path, text in modules(room).items():
        if (lines := len(text.splitlines())) > MOST_LINES:
            found.append(f"{path}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    found.append(f"{path}: {node.name} has {lines} lines")
    assert found == []


def test_few_values_are_of_any_type() -> None:
    texts = [text for room in ROOMS for text in modules(room).values()]
    used = [node for text in texts for node in ast.walk(ast.parse(text)) if _is_any(node)]
    assert 0 < len(used) < MOST_ANY


def _is_any(node: ast.AST) -> bool:
    """Return True for a use of `Any`, in a string as well; not for its import."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith(("Any", "dict[str, Any"))
    return isinstance(node, ast.Name) and node.id == "Any"
