"""Shared by the mutators of all languages: the change of one syntax node, and its description."""

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
    """A node and its replacement; `what` describes the change where the two texts would not."""

    bug: Bug
    node: Node
    text: str
    what: str = ""

    def mutation(self, function: str) -> Mutation:
        """Return the change as an edit of the file."""
        what = self.what or f"`{short(text_of(self.node))}` → `{short(self.text)}`"
        if not self.text and not self.what:
            what = f"`{short(text_of(self.node))}` left out"
        line = self.node.start_point.row + 1
        return Mutation(self.bug, function, line, what, (Edit(span_of(self.node), self.text),))


def short(text: str) -> str:
    """Return source text on one line, shortened if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def other_strictness(comparison: Node, operator: Node) -> Change | None:
    """Return the comparison with `<=` for `<` and the like; None if it is no order comparison."""
    now = _STRICTER.get(text_of(operator))
    if now is None:
        return None
    whole = text_of(comparison)
    at = operator.start_byte - comparison.start_byte
    data = whole.encode()
    text = (data[:at] + now.encode() + data[operator.end_byte - comparison.start_byte :]).decode()
    return Change(Bug.OFF_BY_ONE, comparison, text)


def operands(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yield each operand that can be removed from a sum or product, with the operand that stays."""
    left, right = field(node, "left"), field(node, "right")
    yield right, left
    if text_of(field(node, "operator")) in "+*":
        yield left, right


def spread(found: list[Mutation], most: int) -> list[Mutation]:
    """Return at most `most` of them, evenly spread from the first to the last."""
    if len(found) <= most:
        return found
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]
