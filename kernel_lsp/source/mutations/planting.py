"""What the planters of both languages share: a change at a node, and how it is told."""

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.source.mutations.mutation import Bug, Mutation
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import field, span_of, text_of

_LONGEST = 48
_STRICTER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


@dataclass(frozen=True, slots=True)
class Change:
    """A node and what stands there instead; `what` says so where the two texts would not."""

    bug: Bug
    node: Node
    text: str
    what: str = ""

    def mutation(self, function: str) -> Mutation:
        """The change as an edit of the file."""
        what = self.what or f"`{short(text_of(self.node))}` → `{short(self.text)}`"
        if not self.text and not self.what:
            what = f"`{short(text_of(self.node))}` left out"
        line = self.node.start_point.row + 1
        return Mutation(self.bug, function, line, what, (Edit(span_of(self.node), self.text),))


def short(text: str) -> str:
    """Source text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def other_strictness(comparison: Node, operator: Node) -> Change | None:
    """The comparison with `<=` for `<` and the like; None where it is none of order."""
    now = _STRICTER.get(text_of(operator))
    if now is None:
        return None
    whole = text_of(comparison)
    at = operator.start_byte - comparison.start_byte
    data = whole.encode()
    text = (data[:at] + now.encode() + data[operator.end_byte - comparison.start_byte :]).decode()
    return Change(Bug.OFF_BY_ONE, comparison, text)


def operands(node: Node) -> Iterator[tuple[Node, Node]]:
    """Each operand that can be left out of a sum or product, with the operand that stays."""
    left, right = field(node, "left"), field(node, "right")
    yield right, left
    if text_of(field(node, "operator")) in "+*":
        yield left, right


def spread(found: list[Mutation], most: int) -> list[Mutation]:
    """At most so many of them, evenly from the first to the last."""
    if len(found) <= most:
        return found
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]
