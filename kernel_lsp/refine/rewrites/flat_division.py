"""Find the two numbers that a flat launch divides its threads' number into: `i = n / width` and `j = n % width`."""

from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.affine import Polynomial
from kernel_lsp.refine.rewrites.ast_cuda import bare
from kernel_lsp.refine.rewrites.scopes import CudaVariable
from kernel_lsp.refine.rewrites.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.thread_rows import ThreadRows
from kernel_lsp.source.trees import field, span_of, text_of


@dataclass(frozen=True)
class FlatDivision:
    """A number that is divided into two.

    Attributes:
        quotient: variable of the quotient.
        remainder: variable of the remainder.
        quotient_value: node of the quotient's value.
        remainder_value: node of the remainder's value.
        width: node that both are divided by.
        count: how many quotients there are.
        others: uses of the number beside these two and its guard.
    """

    quotient: CudaVariable
    remainder: CudaVariable
    quotient_value: Node
    remainder_value: Node
    width: Node
    count: Polynomial
    others: tuple[Node, ...]


def find_division(use: MemoryUse, rows: ThreadRows) -> FlatDivision:
    """Return how a kernel divides its threads' number.

    Raises:
        NotApplicableError: it does not, or not exactly once.
    """
    found: dict[str, tuple[CudaVariable, Node, Node]] = {}
    for one in use.scopes.variables:
        value = bare(one.constant) if one.constant is not None else None
        if value is not None and value.type == "binary_expression" and text_of(field(value, "operator")) in "/%":
            left = bare(field(value, "left"))
            if left.type == "identifier" and use.scopes.of(left) is rows.variable:
                operator = text_of(field(value, "operator"))
                if operator in found or one.constant is None:
                    raise NotApplicableError("several divisions")
                found[operator] = one, one.constant, field(value, "right")
    if set(found) != {"/", "%"} or rows.limit is None or rows.guard is None or rows.variable.changes:
        raise NotApplicableError("no division into two")
    (quotient, above, width), (remainder, below, other) = found["/"], found["%"]
    by = use.indices.of(width)
    count = _divided(rows.limit, by)
    if use.indices.of(other) != by or count is None or any("@" in name or "Idx" in name for name in count.names()):
        raise NotApplicableError("another width")
    places = [span_of(node) for node in (above, below, field(rows.guard, "condition"))]
    uses = use.scopes.uses(rows.variable, use.scopes.tree.body)
    others = tuple(n for n in uses if not any(span.holds(span_of(n)) for span in places))
    return FlatDivision(quotient, remainder, above, below, width, count, others)


def _divided(amount: Polynomial, by: Polynomial) -> Polynomial | None:
    """Return a quotient without remainder; None if there is none, or the divisor is a sum."""
    if len(by.terms) != 1:
        return None
    ((unknowns, factor),) = by.terms.items()
    found: dict[tuple[str, ...], int] = {}
    for key, n in amount.terms.items():
        rest = list(key)
        for one in unknowns:
            if one not in rest:
                return None
            rest.remove(one)
        if n % factor:
            return None
        found[tuple(rest)] = n // factor
    return Polynomial(found)
