"""Finds syntax errors of a kernel file by parsing alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_lsp.source.grammar import parse_python
from kernel_lsp.source.language import signs
from kernel_lsp.source.python import is_python, python_ast
from kernel_lsp.source.text import Span

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST = 20
_OF_WORKLOAD = "CASES"


@dataclass(frozen=True, slots=True)
class SyntaxFinding:
    """One syntax error, with the text that shows it."""

    span: Span
    message: str


def find_findings(text: str, path: Path) -> tuple[SyntaxFinding, ...]:
    """Return the first syntax errors of a Python file that has kernels or is a workload; empty for other files.

    CUDA files are not checked: without the preprocessor a grammar reports as many false errors as true ones. Other
    Python files are left to other tools.
    """
    workload = path.stem.endswith("_workload")
    if not is_python(path) or not (workload or any(sign in text for sign in (*signs(path.suffix), _OF_WORKLOAD))):
        return ()
    root = parse_python(text.encode()).root_node
    return tuple(_faults(root, *_complaint(text)))[:_MOST] if root.has_error else ()


def _complaint(text: str) -> tuple[int, str]:
    """Return Python's own words about a text that it cannot parse, and their line from 1; line 0 if it can."""
    try:
        python_ast(text)
    except SyntaxError as error:
        return error.lineno or 0, f"Python cannot parse this: {error.msg}."
    return 0, ""


def _faults(root: "Node", line: int, complaint: str) -> list[SyntaxFinding]:
    """Return the faulty nodes; the ones that cover `line` are explained by `complaint`."""
    found: list[SyntaxFinding] = []
    nodes = [root]
    while nodes and len(found) < _MOST:
        node = nodes.pop()
        if node.is_missing:
            found.append(SyntaxFinding(Span(node.start_byte, node.end_byte), f"`{node.type}` is missing here."))
        elif node.type == "ERROR":
            own = node.start_point[0] < line <= node.end_point[0] + 1
            found.append(
                SyntaxFinding(Span(node.start_byte, node.end_byte), complaint if own else "This is not Python.")
            )
        elif node.has_error:
            nodes += reversed(node.children)
    return found
