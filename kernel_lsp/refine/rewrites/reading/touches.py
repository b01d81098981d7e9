"""Which accesses of threads that share a loop may meet in one element."""

import re
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number
from kernel_lsp.refine.rewrites.reading.ast_cuda import around, in_loop
from kernel_lsp.refine.rewrites.reading.serial_loops import (
    MemoryAccess,
    MemoryUse,
    NotApplicableError,
    SerialLoop,
    serial_loop,
)
from kernel_lsp.source.trees import field, span_of, text_of


@dataclass(frozen=True)
class ThreadTouch:
    """An access, and which thread makes it: the one that has the element, all of them, or the first alone."""

    access: MemoryAccess
    owner: str

    def conflicts(self, other: "ThreadTouch") -> bool:
        """Return True if two threads may touch one element here, and one of them writes."""
        mine, its = self.access, other.access
        if not (mine.written or its.written):
            return False
        if mine.may_touch(its):
            same = mine.offset is not None and self.owner == other.owner and self.owner != "all"
            return not (same and (self.owner == "first" or str(mine.offset) == str(its.offset)))
        return False

    def may_alias(self, other: "ThreadTouch", row: str | None) -> bool:
        """Return True if pointers of two names may mean one element that two threads touch."""
        mine, its = self.access, other.access
        if not (mine.written or its.written) or mine.may_touch(its) or mine.pointer is None or its.pointer is None:
            return False
        if mine.pointer.restricted or its.pointer.restricted or mine.pointer.type != its.pointer.type:
            return False
        if mine.offset is None or its.offset is None:
            return True
        # Rows that would meet in any case do not count.
        apart = row is not None and str(mine.offset.factor(row)) != str(its.offset.factor(row))
        same = self.owner == other.owner != "all" and str(mine.offset) == str(its.offset)
        return not (apart or same)


def check_own_elements(use: MemoryUse, loop: SerialLoop, accesses: list[MemoryAccess]) -> None:
    """Refuse a loop in which one iteration may touch what another one writes."""
    counter = loop.variable.symbol
    length = use.indices.of(loop.limit) - use.indices.of(loop.start)
    if text_of(field(loop.condition, "operator")) == "<=":
        length = length + number(1)
    for one in (a for a in accesses if a.written):
        if _is_atomic(one.node):
            if any(other.may_touch(one) and not _is_atomic(other.node) for other in accesses):
                raise NotApplicableError("an atomic that is read")
            continue
        by = one.offset.factor(counter) if one.offset is not None else None
        if one.offset is None or by is None or not _is_stride(use, by) or in_loop(one.node, loop.node):
            raise NotApplicableError("iterations may write one element")
        for other in accesses:
            if not other.may_touch(one) or other is one:
                continue
            apart = other.offset - one.offset if other.offset is not None else None
            if apart is None or not (
                apart.value == 0
                or (apart.value is not None and abs(apart.value) < abs(by.value or 0))
                or str(apart) in (str(length), str(one.offset - one.offset - length))
            ):
                raise NotApplicableError("iterations may touch one element")


def check_apart(use: MemoryUse, loop: SerialLoop) -> None:
    """Refuse a loop unless each iteration only touches elements of its own in arrays that the loop writes.

    In contrast to `check_own_elements`, an iteration may write its elements in loops of its own, as rows do.
    """
    accesses = use.accesses(loop.body)
    for one in (a for a in accesses if a.written):
        atomic = _is_atomic(one.node)
        for other in (a for a in accesses if a is not one and a.may_touch(one)):
            if str(other.offset) != str(one.offset) and not (atomic and _is_atomic(other.node)):
                raise NotApplicableError("iterations may touch one element")
        if one.offset is None or (not atomic and not _is_apart(use, loop, one)):
            raise NotApplicableError("iterations may write one element")


def _is_apart(use: MemoryUse, loop: SerialLoop, access: MemoryAccess) -> bool:
    """Return True if an access goes to another element in each iteration, whatever loops within count."""
    by = access.offset.factor(loop.variable.symbol) if access.offset is not None else None
    if access.offset is None or by is None:
        return False
    reach = number(1)  # elements from one iteration's first to its last, and one more
    rest = access.offset - by * use.indices.of_symbol(loop.variable)
    for node in (n for n in around(access.node, loop.node) if n.type == "for_statement"):  # inner loops count fast
        inner = serial_loop(use.scopes, node)
        factor = rest.factor(inner.variable.symbol) if inner is not None else None
        if inner is None or factor is None:
            return False
        if factor.terms:
            begins = use.indices.of(inner.start).value == 0 and text_of(field(inner.condition, "operator")) == "<"
            if factor != reach or not begins:
                return False
            reach = reach * use.indices.of(inner.limit)
            rest = rest - factor * use.indices.of_symbol(inner.variable)
    changing = {v.symbol for v in use.scopes.variables if any(span_of(loop.body).holds(span_of(c)) for c in v.changes)}
    wide = reach == by or (reach == number(1) and _is_stride(use, by))
    return wide and not rest.names() & changing


def _is_stride(use: MemoryUse, by: Polynomial) -> bool:
    """Return True for a number other than 0, or a product of sizes: a matrix has at least one row and one column."""
    if by.value is not None or len(by.terms) != 1:
        return by.value not in (None, 0)
    sizes = by.names()
    changing = any(v.symbol in sizes and (v.changes or v.pointer) for v in use.scopes.variables)
    return not changing and all(re.fullmatch(r"[\w@]+", size) for (key,) in [by.terms] for size in key)


def _is_atomic(node: Node) -> bool:
    while node.parent is not None and node.type in ("subscript_expression", "pointer_expression", "argument_list"):
        node = node.parent
    atomic = node.type == "call_expression" and text_of(field(node, "function")).startswith("atomic")
    return atomic and node.parent is not None and node.parent.type == "expression_statement"
