"""Helpers for nodes of tree-sitter's syntax trees."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kernel_lsp.source.text import Span

if TYPE_CHECKING:
    from tree_sitter import Node


def text_of(node: "Node") -> str:
    """Return the node's source text."""
    return (node.text or b"").decode()


def walk(node: "Node") -> Iterator["Node"]:
    """Yield the node and all its descendants, in source order."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += reversed(one.children)


def span_of(node: "Node") -> Span:
    """Return the node's span."""
    return Span(node.start_byte, node.end_byte)


def field(node: "Node", name: str) -> "Node":
    """Return a child that the grammar guarantees.

    Raises:
        LookupError: the tree was repaired round a syntax error and lacks it.
    """
    child = node.child_by_field_name(name)
    if child is None:
        raise LookupError(name)
    return child


def imported_names(imports: "Iterable[Node]") -> dict[str, str]:
    """Return local name -> dotted name for these Python import statements; later ones win."""
    names: dict[str, str] = {}
    for node in imports:
        module = node.child_by_field_name("module_name")
        prefix = f"{text_of(module)}." if module else ""
        for item in node.children_by_field_name("name"):
            name, alias = item.child_by_field_name("name"), item.child_by_field_name("alias")
            dotted = text_of(name or item)
            if alias:
                names[text_of(alias)] = prefix + dotted
            elif prefix:
                names[dotted] = prefix + dotted
            else:  # `import a.b` binds `a`
                names[dotted.split(".")[0]] = dotted.split(".")[0]
    return names
