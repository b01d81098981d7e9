"""Running sums: a loop that adds to a variable and stores it, or something made from it, in each iteration."""

from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import bare
from kernel_lsp.refine.rewrites.reading.reductions import TYPES, WHOLE
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError, SerialLoop
from kernel_lsp.source.trees import field, span_of, text_of


@dataclass(frozen=True)
class LoopScan:
    """A loop whose only variable from outside is a running sum.

    Attributes:
        variable: the sum.
        summand: what an iteration adds.
        ahead: declarations of the iteration's own that stand before.
        behind: statements that follow, and see the sum with this iteration's summand; or without it, if `exclusive`.
        exclusive: those statements stand ahead of the addition. Only of whole numbers, whose summand can be taken away.
    """

    variable: CudaVariable
    summand: Node
    ahead: tuple[Node, ...]
    behind: tuple[Node, ...]
    exclusive: bool = False


def find_scan(use: MemoryUse, loop: SerialLoop) -> LoopScan | None:
    """Return a loop as a running sum; None for any other.

    Raises:
        NotApplicableError: it is one, and does something else beside.
    """
    inner = loop.body.named_children if loop.body.type == "compound_statement" else [loop.body]
    statements = [n for n in inner if n.type != "comment"]
    at = next((i for i, n in enumerate(statements) if n.type == "expression_statement"), None)
    found = added_to(use, statements[at], loop) if at is not None else None
    exclusive = at is not None and found is None
    if exclusive:
        found = added_to(use, statements[-1], loop)
    if at is None or found is None or not statements[at + 1 :]:
        return None
    variable, summand = found
    ahead, behind = statements[:at], statements[at:-1] if exclusive else statements[at + 1 :]
    if exclusive and use.scopes.tree.plain_type(variable.type) not in WHOLE:
        return None
    if not any(use.scopes.uses(variable, node) for node in behind):
        return None
    span = span_of(loop.body)
    for one in use.scopes.variables:
        outside = one.declaration is None or not span.holds(span_of(one.declaration))
        changes = [c for c in one.changes if span.holds(span_of(c))]
        if outside and one is not variable and changes:
            raise NotApplicableError(f"`{one.name}` is carried from one iteration to the next, too")
        if one is variable and len(changes) != 1:
            raise NotApplicableError("a sum that changes twice")
    plain = all(n.type == "declaration" and len(n.children_by_field_name("declarator")) == 1 for n in ahead)
    if not plain or any(use.scopes.uses(variable, n) for n in (*ahead, summand)):
        raise NotApplicableError("other work ahead of the sum")
    if any(a.written for n in (*ahead, summand) for a in use.accesses(n)):
        raise NotApplicableError("something is written ahead of the sum")
    stored = [a for n in behind for a in use.accesses(n) if a.written]
    if exclusive and any(a.may_touch(b) for a in stored for b in use.accesses(summand)):
        raise NotApplicableError("a summand that is read behind what is stored")
    if any(n.type not in ("expression_statement", "if_statement", "declaration") for n in behind):
        raise NotApplicableError("other work behind the sum")
    return LoopScan(variable, summand, tuple(ahead), tuple(behind), exclusive)


def added_to(use: MemoryUse, statement: Node, loop: SerialLoop) -> tuple[CudaVariable, Node] | None:
    """Return variable and summand of `sum += value;` or `sum = sum + value;` for a sum from outside of the loop."""
    change = statement.named_children[0] if statement.named_child_count else statement
    if change.type != "assignment_expression" or field(change, "left").type != "identifier":
        return None
    variable, right = use.scopes.of(field(change, "left")), bare(field(change, "right"))
    declared = variable.declaration if variable is not None else None
    if variable is None or declared is None or span_of(loop.body).holds(span_of(declared)):
        return None
    kind = use.scopes.tree.named_type(variable.type)
    if kind not in TYPES and kind not in use.scopes.tree.type_parameters:
        return None
    if text_of(field(change, "operator")) == "+=":
        return variable, right
    if text_of(field(change, "operator")) == "=" and right.type == "binary_expression":
        sides = [field(right, "left"), field(right, "right")]
        others = [side for side in sides if text_of(bare(side)) != variable.name]
        if text_of(field(right, "operator")) == "+" and len(others) == 1:
            return variable, others[0]
    return None
