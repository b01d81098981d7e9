"""Sums, products, largest and smallest values that a loop gathers in one variable; and how threads combine theirs."""

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import bare, comment_free
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError, SerialLoop
from kernel_lsp.source.trees import field, span_of, text_of, walk

TYPES = {
    "float", "double", "int", "unsigned", "unsigned int", "uint", "long", "unsigned long", "long long",
    "unsigned long long", "int32_t", "uint32_t", "int64_t", "uint64_t", "size_t",
}  # fmt: skip
"""Types whose values threads can hand to each other."""
WHOLE = TYPES - {"float", "double"}
"""Those of whole numbers."""
_EXTREMES = {"fmaxf": "max", "fmax": "max", "max": "max", "fminf": "min", "fmin": "min", "min": "min"}
_FUSED = {"fmaf", "fma", "__fmaf_rn", "__fma_rn", "__hfma"}
ZERO = re.compile(r"[({]*(0|0?\.0*|0\.0*)[fFuUlL]*[)}]*")
_COMBINED = {"+": "a + b", "*": "a * b"}
_NEUTRAL = {"+": "0", "*": "1"}


@dataclass(frozen=True)
class LoopReduction:
    """A variable from outside of a loop that the loop only combines with values that do not depend on it.

    Attributes:
        variable: what gathers.
        kind: its type, whatever the file calls it; a template's parameter by its own name.
        operation: `+`, `*`, `max` or `min`.
        uses: the identifiers in the loop's body that mean the variable.
        compared: `if (value > variable) variable = value;` with the text of its value, for each that is so written.
    """

    variable: CudaVariable
    kind: str
    operation: str
    uses: tuple[Node, ...]
    compared: tuple[tuple[Node, str], ...]

    @property
    def starts_neutral(self) -> bool:
        """Return True if the variable's first value changes nothing, however often it is combined."""
        value = self.variable.value
        if self.operation in ("max", "min"):
            return True
        return self.operation == "+" and value is not None and ZERO.fullmatch(comment_free(value)) is not None

    @property
    def neutral(self) -> str:
        """Return the value that changes no sum or product, as text."""
        return _NEUTRAL[self.operation] + {"float": ".0f", "double": ".0"}.get(self.kind, "")

    @property
    def function(self) -> str:
        """Return a lambda that combines two values."""
        kind = self.variable.type
        value = _COMBINED.get(self.operation) or f"{extreme(self.operation, self.kind)}(a, b)"
        return f"[]({kind} a, {kind} b) {{ return {value}; }}"


def extreme(operation: str, kind: str) -> str:
    """Return the function for the larger or smaller of two numbers of a type."""
    return {"float": f"f{operation}f", "double": f"f{operation}"}.get(kind, operation)


def find_reductions(
    scopes: Scopes, loop: SerialLoop, without: Container[CudaVariable] = (), kinds: Container[str] = TYPES
) -> list[LoopReduction]:
    """Return what a loop gathers in variables of some types, without some variables.

    Raises:
        NotApplicableError: it hands something else from one iteration to the next.
    """
    found: list[LoopReduction] = []
    body = span_of(loop.body)
    for variable in scopes.variables:
        inside = [change for change in variable.changes if body.holds(span_of(change))]
        declared = variable.declaration is not None and body.holds(span_of(variable.declaration))
        if not inside or declared or variable in without:
            continue
        found.append(_reduction(scopes, loop, variable, inside, kinds))
    return found


def _reduction(
    scopes: Scopes, loop: SerialLoop, variable: CudaVariable, changes: list[Node], kinds: Container[str]
) -> LoopReduction:
    uses = scopes.uses(variable, loop.body)
    explained: set[int] = set()
    operations: set[str] = set()
    compared: list[tuple[Node, str]] = []
    for change in changes:
        statement = _change(change)
        mine, operation, value = _gathered(statement, variable.name)
        explained |= {n.id for n in uses if span_of(mine).holds(span_of(n))}
        operations.add(operation)
        if sum(span_of(mine).holds(span_of(n)) for n in uses) != len(list(_own_uses(mine, variable.name))):
            raise NotApplicableError("another variable of that name")
        if mine.type == "if_statement" and value is not None:
            compared.append((mine, value))
    kind = scopes.tree.named_type(variable.type)
    known = kind in kinds or kind in scopes.tree.type_parameters
    if len(operations) != 1 or explained != {n.id for n in uses} or not known:
        raise NotApplicableError(f"`{variable.name}` is carried from one iteration to the next")
    return LoopReduction(variable, kind, operations.pop(), tuple(uses), tuple(compared))


def _own_uses(node: Node, name: str) -> Iterator[Node]:
    return (n for n in walk(node) if n.type == "identifier" and text_of(n) == name)


def _change(name: Node) -> Node:
    node = name.parent
    while node is not None and node.type == "parenthesized_expression":
        node = node.parent
    if node is None or node.type not in ("assignment_expression", "update_expression"):
        raise NotApplicableError("an address is taken")
    return node


def _gathered(change: Node, name: str) -> tuple[Node, str, str | None]:
    """Return the statement or expression that gathers, its operation, and the value of a comparison."""
    if change.type == "update_expression":
        if change.parent is not None and change.parent.type == "expression_statement":
            return change, "+", None
        raise NotApplicableError("a count is used as it changes")
    operator, right = text_of(field(change, "operator")), bare(field(change, "right"))
    if change.parent is None or change.parent.type != "expression_statement":
        raise NotApplicableError("an assignment is used as a value")
    if operator in ("+=", "-=", "*="):
        if name in _words(right):
            raise NotApplicableError("a recurrence")
        return change, {"-=": "+"}.get(operator, operator[0]), None
    if operator == "=" and (operation := _combination(right, name)):
        return change, operation, None
    if operator == "=" and (found := _comparison(change, right, name)):
        return found
    raise NotApplicableError("a recurrence")


def _words(node: Node) -> set[str]:
    return {text_of(n) for n in walk(node) if n.type == "identifier"}


def _combination(value: Node, name: str) -> str | None:
    """Return the operation of `name + x`, `fmaxf(name, x)`, `fmaf(x, y, name)`, `x > name ? x : name` or the like."""
    if value.type == "binary_expression" and text_of(field(value, "operator")) in ("+", "-", "*"):
        operator = text_of(field(value, "operator"))
        left, right = bare(field(value, "left")), bare(field(value, "right"))
        if name not in _words(right):
            kind = "*" if operator == "*" else "+"
            inner = text_of(left) == name or (left.type == "binary_expression" and _combination(left, name) == kind)
            return kind if inner else None
        return operator if operator != "-" and text_of(right) == name and name not in _words(left) else None
    if value.type == "call_expression":
        called = text_of(field(value, "function")).split("::")[-1]
        given = [bare(n) for n in field(value, "arguments").named_children]
        mine = [n for n in given if text_of(n) == name]
        others = [n for n in given if text_of(n) != name]
        if len(mine) == 1 and not any(name in _words(n) for n in others):
            if called in _EXTREMES and len(given) == 2:
                return _EXTREMES[called]
            fused = called in _FUSED and given[-1] == mine[0]
            return "+" if fused or (called == "__hadd" and len(given) == 2) else None
    if value.type == "conditional_expression":
        chosen, other = bare(field(value, "consequence")), bare(field(value, "alternative"))
        found = larger(bare(field(value, "condition")), name)
        if found and {text_of(chosen), text_of(other)} == {name, found[1]}:
            return found[0] if text_of(other) == name else {"max": "min", "min": "max"}[found[0]]
    return None


def larger(condition: Node, name: str) -> tuple[str, str] | None:
    """Return `max` and the value of `value > name`, or `min` and that of `value < name`; None for other conditions."""
    if condition.type == "condition_clause":
        condition = bare(field(condition, "value"))
    if condition.type != "binary_expression":
        return None
    left, right = bare(field(condition, "left")), bare(field(condition, "right"))
    operator = text_of(field(condition, "operator"))[0]
    if operator not in "<>" or (text_of(left) == name) == (text_of(right) == name):
        return None
    value = right if text_of(left) == name else left
    above = (operator == ">") == (value == left)
    return None if name in _words(value) else ("max" if above else "min", text_of(value))


def _comparison(change: Node, right: Node, name: str) -> tuple[Node, str, str | None] | None:
    """Return `if (value > name) name = value;` as a whole."""
    statement = change.parent.parent if change.parent is not None else None
    if statement is not None and statement.type == "compound_statement" and statement.named_child_count == 1:
        statement = statement.parent
    if statement is None or statement.type != "if_statement" or statement.child_by_field_name("alternative"):
        return None
    found = larger(field(statement, "condition"), name)
    return (statement, *found) if found and "".join(found[1].split()) == "".join(text_of(right).split()) else None
