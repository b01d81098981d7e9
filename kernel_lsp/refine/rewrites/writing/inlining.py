"""Write an expression with the values of locals in the places of their names."""

from collections.abc import Collection, Iterator, Mapping

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import text_of


def with_values(scopes: Scopes, node: Node, inlined: Collection[CudaVariable], changed: Mapping[int, str]) -> str:
    """Return a node's text with the values of some constants for their names, and other text for some nodes by id."""
    edits = (
        Edit(Span(n.start_byte - node.start_byte, n.end_byte - node.start_byte), text)
        for n, text in _edits(scopes, node, inlined, changed)
    )
    return apply_edits(text_of(node), list(edits))


def _edits(
    scopes: Scopes, node: Node, inlined: Collection[CudaVariable], changed: Mapping[int, str]
) -> Iterator[tuple[Node, str]]:
    """Yield the nodes in a node that get another text, each with that text."""
    variable = scopes.of(node) if node.type == "identifier" else None
    if node.id in changed:
        yield node, changed[node.id]
    elif variable in inlined and variable is not None and variable.constant is not None:
        text = with_values(scopes, variable.constant, inlined, changed)
        alone = node.parent is not None and node.parent.type in ("subscript_argument_list", "argument_list")
        yield node, text if alone else closed(text)
    else:
        for child in node.children:
            yield from _edits(scopes, child, inlined, changed)
