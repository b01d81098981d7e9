"""Find what a flat launch divides its threads' number into: `z = n / (w * h)`, `i = n / w % h` and `j = n % w`."""

from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, all_within
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import ThreadRows
from kernel_lsp.source.trees import field, span_of, text_of


@dataclass(frozen=True)
class Digit:
    """A variable with the value `n / divisor`, or `n / divisor % base`.

    Attributes:
        variable: it.
        value: node of its value.
        divisor: what the number is divided by; 1 where it is not.
        base: what the remainder is of; None where there is none.
    """

    variable: CudaVariable
    value: Node
    divisor: Polynomial
    base: Polynomial | None


@dataclass(frozen=True)
class FlatDivision:
    """A number that is divided into a row and a column, and a batch of these where rows are counted anew in each.

    Attributes:
        row: the row.
        column: the column.
        width: columns of a row.
        count: rows of a matrix.
        batch: what else the number is divided into, each with its divisor in matrices.
        batches: how many matrices there are; None without a batch.
        unused: variables that only the others are made of.
        others: uses of the number beside these and its guard.
    """

    row: Digit
    column: Digit
    width: Polynomial
    count: Polynomial
    batch: tuple[Digit, ...]
    batches: Polynomial | None
    unused: tuple[Digit, ...]
    others: tuple[Node, ...]


def find_division(use: MemoryUse, rows: ThreadRows) -> FlatDivision:
    """Return how a kernel divides its threads' number.

    Raises:
        NotApplicableError: it does not, or not into one row and one column.
    """
    if rows.limit is None or rows.guard is None or rows.variable.changes:
        raise NotApplicableError("no division into two")
    found = [
        Digit(one, one.constant, *told)
        for one in use.scopes.variables
        if one.constant
        if (told := _parts(use, rows, one.constant)) and told != (number(1), None)
    ]
    spans = [span_of(one.value) for one in found]
    unused = tuple(one for one in found if all_within(use.scopes.uses(one.variable, use.scopes.tree.body), spans))
    found = [one for one in found if one not in unused]
    column = _only([one for one in found if one.divisor == number(1)])
    width = column.base
    row = _only([one for one in found if one.divisor == width])
    others = [one for one in found if one not in (row, column)]
    if width is None or (row.base is None and others):
        raise NotApplicableError("no division into two")
    matrix = width if row.base is None else width * row.base
    rest = _divided(rows.limit, matrix)
    batch = [Digit(one.variable, one.value, by, one.base) for one in others if (by := _divided(one.divisor, matrix))]
    if rest is None or len(batch) < len(others):
        raise NotApplicableError("another width")
    count, batches = (rest, None) if row.base is None else (row.base, rest)
    bases = [one.base for one in batch if one.base is not None]
    if not all(_is_known(amount) for amount in (width, count, rest, *bases, *(one.divisor for one in batch))):
        raise NotApplicableError("a width that depends on the thread")
    batches = None if batches == number(1) and not batch else batches
    places = [*spans, span_of(field(rows.guard, "condition"))]
    uses = use.scopes.uses(rows.variable, use.scopes.tree.body)
    left = tuple(n for n in uses if not any(span.holds(span_of(n)) for span in places))
    return FlatDivision(row, column, width, count, tuple(batch), batches, unused, left)


def _parts(use: MemoryUse, rows: ThreadRows, node: Node) -> tuple[Polynomial, Polynomial | None] | None:
    """Return divisor and base of a part of the number; None for what is none."""
    node = bare(node)
    if node.type == "identifier":
        variable = use.scopes.of(node)
        if variable is rows.variable:
            return number(1), None
        return _parts(use, rows, variable.constant) if variable is not None and variable.constant is not None else None
    if node.type != "binary_expression" or (operator := text_of(field(node, "operator"))) not in ("/", "%"):
        return None
    above, by = _parts(use, rows, field(node, "left")), use.indices.of(field(node, "right"))
    if above is None or above[1] is not None:
        return None
    return (above[0] * by, None) if operator == "/" else (above[0], by)


def _only(found: list[Digit]) -> Digit:
    """Return the only one.

    Raises:
        NotApplicableError: there is none, or several.
    """
    if len(found) != 1:
        raise NotApplicableError("no division into two")
    return found[0]


def _is_known(amount: Polynomial) -> bool:
    """Return True for what is the same for all threads, and known ahead of the kernel's work."""
    return not any("@" in name or "Idx" in name for name in amount.names())


def _divided(amount: Polynomial, by: Polynomial) -> Polynomial | None:
    """Return a quotient without remainder; None if there is none."""
    names = sorted(amount.names() | by.names() | {one for p in (amount, by) for key in p.terms for one in key})

    def order(key: tuple[str, ...]) -> tuple[int, list[int]]:
        return len(key), [key.count(name) for name in names]

    if not by.terms:
        return None
    leading = max(by.terms, key=order)
    found = number(0)
    while amount.terms:
        key = max(amount.terms, key=order)
        rest = list(key)
        for one in leading:
            if one not in rest:
                return None
            rest.remove(one)
        if amount.terms[key] % by.terms[leading]:
            return None
        part = Polynomial({tuple(rest): amount.terms[key] // by.terms[leading]})
        found, amount = found + part, amount - part * by
    return found
