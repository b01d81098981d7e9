"""What parsing alone shows to be wrong in a kernel file."""

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
class Finding:
    """One fault, and the text that shows it."""

    span: Span
    message: str


def find_findings(text: str, path: Path) -> tuple[Finding, ...]:
    """Faults of syntax: of Python where a grammar cannot read it, the first few of them.

    A CUDA file is not judged by a grammar, which without its preprocessor errs as often as the author does. Python that
    is neither a workload nor speaks of kernels is left to those whose business it is.
    """
    workload = path.stem.endswith("_workload")
    if not is_python(path) or not (workload or any(sign in text for sign in (*signs(path.suffix), _OF_WORKLOAD))):
        return ()
    root = parse_python(text.encode()).root_node
    return tuple(_faults(root))[:_MOST] if root.has_error else ()


def _faults(root: "Node") -> list[Finding]:
    found: list[Finding] = []
    nodes = [root]
    while nodes and len(found) < _MOST:
        node = nodes.pop()
        if node.is_missing:
            found.append(Finding(Span(node.start_byte, node.end_byte), f"`{node.type}` is missing here."))
        elif node.type == "ERROR":
            found.append(Finding(Span(node.start_byte, node.end_byte), "This is not Python."))
        elif node.has_error:
            nodes += reversed(node.children)
    return found
