"""Recognise kernels in which each thread of a flat launch has a number, and does all of the work for that number."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare, condition_parts, names, only_returns
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes, all_within
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_PLACE = re.compile(r"threadIdx\.\w|blockDim\.\w|blockIdx\.x|gridDim\.x")
_HIDDEN = re.compile(r"threadIdx|blockIdx|blockDim|gridDim|__shared__|__sync")


@dataclass(frozen=True)
class ThreadRows:
    """A kernel whose threads are numbered along x, and use that number alone.

    Attributes:
        variable: the number.
        value: its value, or first value in a loop over the grid.
        update: how far such a loop moves on; None without one.
        feeding: declarations that serve for nothing but the number.
        limit: how many numbers have work; None where the launch has as many threads.
        guard: the statement that tests the number against it; None where a loop over the grid does, or nothing.
        end: the limit's node in there.
    """

    variable: CudaVariable
    value: Node
    update: Node | None
    feeding: tuple[Node, ...]
    limit: Polynomial | None
    guard: Node | None
    end: Node | None

    @property
    def symbol(self) -> str:
        """Return the unknown that stands for the number in indices: what it grows with from thread to thread."""
        return self.variable.symbol if self.variable.changes else "threadIdx.x"


def find_thread_rows(use: MemoryUse) -> ThreadRows:
    """Return how a kernel numbers its threads.

    Raises:
        NotApplicableError: it has another form.
    """
    for variable in use.scopes.variables:
        declaration = variable.declaration
        if declaration is None or variable.value is None or not _is_number(use.indices.of(variable.value)):
            continue
        outer = declaration.parent
        loop = outer if outer is not None and outer.type == "for_statement" else None
        top = declaration if loop is None else loop
        if top.parent != use.scopes.tree.body or (variable.changes and loop is None):
            continue
        update = _grid_step(use, variable, loop) if loop is not None else None
        feeding = _feeding(use, [variable.value, *([update] if update else [])])
        guard, end = _limit(use, variable, loop)
        limit = use.indices.of(end) if end is not None else None
        return ThreadRows(variable, variable.value, update, feeding, limit, guard, end)
    raise NotApplicableError("no number of a thread")


def _is_number(value: Polynomial) -> bool:
    """Return True for `blockIdx.x * width + threadIdx.x`."""
    width = (value - symbol("threadIdx.x")).factor("blockIdx.x")
    if width is None or len(width.terms) != 1 or any("Idx" in name for name in width.names()):
        return False
    return value == width * symbol("blockIdx.x") + symbol("threadIdx.x")


def _grid_step(use: MemoryUse, variable: CudaVariable, loop: Node) -> Node:
    """Return the amount of `row += gridDim.x * blockDim.x`."""
    update = field(loop, "update")
    if update.type != "assignment_expression" or text_of(field(update, "operator")) != "+=":
        raise NotApplicableError("the loop over the grid")
    step = use.indices.of(field(update, "right"))
    if len(variable.changes) != 1 or step != symbol("gridDim.x") * symbol("blockDim.x"):
        raise NotApplicableError("the loop over the grid")
    return field(update, "right")


def _feeding(use: MemoryUse, number: list[Node]) -> tuple[Node, ...]:
    """Return declarations that only the number uses.

    Raises:
        NotApplicableError: something else depends on the thread.
    """
    scopes, taken = use.scopes, [span_of(node) for node in number]
    feeding: list[Node] = []
    for declaration in reversed(list(dict.fromkeys(v.declaration for v in scopes.variables))):  # later ones use earlier
        made = [v for v in scopes.variables if v.declaration == declaration]
        if declaration is None or not all(v.value and not v.changes and _PLACE.search(text_of(v.value)) for v in made):
            continue
        uses = [n for v in made for n in scopes.uses(v, scopes.tree.body)]
        if all_within(uses, taken):
            feeding.append(declaration)
            taken.append(span_of(declaration))
    check_elsewhere(scopes, taken, _PLACE)
    return tuple(feeding)


def check_elsewhere(scopes: Scopes, taken: Sequence[Span], place: re.Pattern[str]) -> None:
    """Refuse a kernel that depends on the thread elsewhere than in these spans.

    Args:
        scopes: of the kernel.
        taken: the spans.
        place: matches what a thread has a number by, such as `threadIdx.x`.

    Raises:
        NotApplicableError: it does.
    """
    macros = thread_macros(scopes.tree.root)
    for node in walk(scopes.tree.body):
        if any(span.holds(span_of(node)) for span in taken):
            continue
        if node.type == "field_expression" and place.match(text_of(node)):
            raise NotApplicableError("something else depends on the thread")
        if node.type == "identifier" and text_of(node) in macros:
            raise NotApplicableError("a macro depends on the thread")


def thread_macros(root: Node) -> set[str]:
    """Return the macros of a file that depend on the thread or its block."""
    kinds = ("preproc_def", "preproc_function_def")
    return {text_of(field(n, "name")) for n in walk(root) if n.type in kinds and _HIDDEN.search(text_of(n))}


def _limit(use: MemoryUse, variable: CudaVariable, loop: Node | None) -> tuple[Node | None, Node | None]:
    """Return the statement that leaves numbers without work, and the first of these.

    Raises:
        NotApplicableError: only a part of what is written depends on it.
    """
    if loop is not None:
        limit = _bound(use, variable, field(loop, "condition"), ("<",))
        if limit is None:
            raise NotApplicableError("the loop over the grid")
        _check_silent(use, [n for n in use.scopes.tree.body.named_children if n != loop])
        return None, limit
    statements = [n for n in use.scopes.tree.body.named_children if n.type != "comment"]
    for at, one in enumerate(statements):
        if one.type != "if_statement" or variable.name not in names(field(one, "condition")):
            continue
        leaves = only_returns(field(one, "consequence"))
        limit = _bound(use, variable, field(one, "condition"), (">=",) if leaves else ("<",))
        if limit is not None and one.child_by_field_name("alternative") is None:
            _check_silent(use, statements[:at] if leaves else statements[:at] + statements[at + 1 :])
            return one, limit
    return None, None


def _check_silent(use: MemoryUse, statements: list[Node]) -> None:
    if any(one.written for node in statements for one in use.accesses(node)):
        raise NotApplicableError("something is written without regard to the limit")


def _bound(use: MemoryUse, variable: CudaVariable, condition: Node, operators: tuple[str, ...]) -> Node | None:
    """Return the end of `number < end` (or `number >= end`), which a condition states alone or among others."""
    joint = "||" if operators == (">=",) else "&&"
    for part in condition_parts(condition, joint):
        tested = compared(part, operators[0])
        if tested is not None and _is(use, tested[0], variable):
            return tested[1]
    return None


def compared(part: Node, operator: str) -> tuple[Node, Node] | None:
    """Return both sides of `left < right` (or `>=`, by `operator`), however it is turned; None for other conditions."""
    if part.type == "binary_expression":
        left, right = field(part, "left"), field(part, "right")
        found = text_of(field(part, "operator"))
        if found == operator:
            return left, right
        if {">": "<", "<=": ">="}.get(found) == operator:
            return right, left
    return None


def _is(use: MemoryUse, node: Node, variable: CudaVariable) -> bool:
    node = bare(node)
    return node.type == "identifier" and use.scopes.of(node) is variable
