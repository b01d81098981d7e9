"""Finds syntax errors of a kernel file by parsing alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_lsp.source.grammar import parse_python
from kernel_lsp.source.language import signs
from kernel_lsp.source.python import is_python
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
    return tuple(_faults(root))[:_MOST] if root.has_error else ()


def _faults(root: "Node") -> list[SyntaxFinding]:
    found: list[SyntaxFinding] = []
    nodes = [root]
    while nodes and len(found) < _MOST:
        node = nodes.pop()
        if node.is_missing:
            found.append(SyntaxFinding(Span(node.start_byte, node.end_byte), f"`{node.type}` is missing here."))
        elif node.type == "ERROR":
            found.append(SyntaxFinding(Span(node.start_byte, node.end_byte), "This is not Python."))
        elif node.has_error:
            nodes += reversed(node.children)
    return found
