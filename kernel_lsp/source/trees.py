"""Four questions that everyone asks of a node of a syntax tree."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernel_lsp.source.text import Span

if TYPE_CHECKING:
    from tree_sitter import Node


def text_of(node: "Node") -> str:
    """The node's source text."""
    return (node.text or b"").decode()


def walk(node: "Node") -> Iterator["Node"]:
    """The node and everything under it, in source order."""
    yield node
    for child in node.children:
        yield from walk(child)


def span_of(node: "Node") -> Span:
    """Where the node stands."""
    return Span(node.start_byte, node.end_byte)


def field(node: "Node", name: str) -> "Node":
    """A field that the grammar guarantees.

    Raises:
        LookupError: the tree was repaired round a syntax error and lacks it.
    """
    child = node.child_by_field_name(name)
    if child is None:
        raise LookupError(name)
    return child
