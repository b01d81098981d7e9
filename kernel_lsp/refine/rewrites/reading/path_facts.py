"""Facts about numbers that hold where a kernel evaluates an expression, from the conditions on the way there."""

from collections.abc import Iterator

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number, thread_index
from kernel_lsp.refine.rewrites.reading.ast_cuda import around, condition_parts
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, serial_loop
from kernel_lsp.source.trees import field, text_of

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_LEAVING = ("return_statement", "continue_statement")


def facts_at(use: MemoryUse, node: Node) -> list[Polynomial]:
    """Return polynomials that are not negative where a node is evaluated.

    They come from the branches and loops around it, and from earlier branches that leave. Conditions on a
    variable that changes elsewhere, or on memory, are left out.
    """
    found: list[Polynomial] = []
    unequal: list[Polynomial] = []
    for operator, left, right in _conditions(use, node):
        difference = use.indices.of(right) - use.indices.of(left)
        if operator in ("<", "<=", "=="):
            found.append(difference - number(operator == "<"))
        if operator in (">", ">=", "=="):
            found.append(number(-1) * difference - number(operator == ">"))
        if operator == "!=":
            unequal.append(difference)
    counters: set[str] = set()
    for loop in (serial_loop(use.scopes, n) for n in around(node) if n.type == "for_statement"):
        if loop is not None:
            counter = use.indices.of_symbol(loop.variable)
            last = use.indices.of(loop.limit) - number(text_of(field(loop.condition, "operator")) == "<")
            found += [counter - use.indices.of(loop.start), last - counter]
            counters.add(loop.variable.symbol)
    for axis in "xyz":
        found.append(thread_index(axis))
    unsure = {v.symbol for v in use.scopes.variables if v.pointer or (v.changes and v.symbol not in counters)}
    for one in unequal:  # not negative and not 0: at least 1
        for at, fact in enumerate(found):
            if str(one) in (str(fact), str(number(-1) * fact)):
                found[at] = fact - number(1)
    return [fact for fact in found if not fact.names() & unsure]


def _conditions(use: MemoryUse, node: Node) -> Iterator[tuple[str, Node, Node]]:
    """Yield comparisons that hold at a node: operator and both sides."""
    child = node
    for parent in around(node):
        if parent.type in ("if_statement", "conditional_expression"):
            condition = field(parent, "condition")
            if child == parent.child_by_field_name("consequence"):
                yield from _parts(condition, holds=True)
            elif child == parent.child_by_field_name("alternative"):
                yield from _parts(condition, holds=False)
        elif parent.type == "binary_expression" and child == parent.child_by_field_name("right"):
            if (operator := text_of(field(parent, "operator"))) in ("&&", "||"):
                yield from _parts(field(parent, "left"), holds=operator == "&&")
        elif parent.type == "compound_statement":
            for before in parent.named_children:
                if before == child:
                    break
                branch = before.child_by_field_name("consequence") if before.type == "if_statement" else None
                if branch is not None and not before.child_by_field_name("alternative") and _leaves(branch):
                    yield from _parts(field(before, "condition"), holds=False)
        child = parent


def _leaves(branch: Node) -> bool:
    """Return True for a branch behind which nothing of its block runs."""
    if branch.type == "compound_statement":
        inner = [n for n in branch.named_children if n.type != "comment"]
        return bool(inner) and inner[-1].type in _LEAVING
    return branch.type in _LEAVING


def _parts(condition: Node, *, holds: bool) -> Iterator[tuple[str, Node, Node]]:
    """Yield the comparisons that a condition is made of, as far as all of them follow from it."""
    for part in condition_parts(condition, "&&" if holds else "||"):
        if part.type == "binary_expression" and (operator := text_of(field(part, "operator"))) in _NEGATED:
            yield operator if holds else _NEGATED[operator], field(part, "left"), field(part, "right")
