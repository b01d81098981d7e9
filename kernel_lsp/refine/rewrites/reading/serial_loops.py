"""Loops in which one thread walks a range, and what such code reads and writes in memory."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Indices, Polynomial
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare
from kernel_lsp.refine.rewrites.reading.loops import loop_step
from kernel_lsp.refine.rewrites.reading.scopes import NAMES, CudaVariable, Scopes
from kernel_lsp.source.trees import field, span_of, text_of, walk

_LOADS = {"__ldg", "__ldcs", "__ldcg", "__ldca", "__ldlu", "__ldcv"}
_STORES = {"__stcs", "__stcg", "__stwb", "__stwt"}
_IMPURE = re.compile(r"^(__sync|__shfl|__ballot|__any|__all|__match|__reduce|__threadfence|clock|printf|assert|__trap)")
_OWN = re.compile(r"threadIdx|blockIdx|__shared__|\basm\b|static \w+ \w+ =|atomic|__sync|__shfl|clock|printf")
_STATEMENT = re.compile(r"[\[{};&]|[^=!<>]=[^=]|\+\+|--|threadIdx|blockIdx|__sync|__shared__|(^|[(,=+\-/%<>?:])\s*\*")
_COMPARISONS = ("==", "!=", "&&", "||")


class NotApplicableError(LookupError):
    """The kernel is not of the form that a rewrite takes, or does what the rewrite would change."""


@dataclass(frozen=True)
class SerialLoop:
    """`for (variable = start; variable < limit; variable++) body`, as one thread runs it.

    Attributes:
        node: the statement.
        variable: what is counted.
        start: its first value.
        condition: `variable < limit` or `variable <= limit`.
        limit: the end.
        update: `variable++` or another way to add one.
        body: what is repeated.
    """

    node: Node
    variable: CudaVariable
    start: Node
    condition: Node
    limit: Node
    update: Node
    body: Node


def serial_loop(scopes: Scopes, node: Node) -> SerialLoop | None:
    """Return a `for` statement as such a loop; None for any other."""
    head, condition = node.child_by_field_name("initializer"), node.child_by_field_name("condition")
    update = node.child_by_field_name("update")
    if node.type != "for_statement" or head is None or condition is None or update is None:
        return None
    if head.type == "declaration" and len(head.children_by_field_name("declarator")) == 1:
        head = field(head, "declarator")
        name, start = head.child_by_field_name("declarator"), head.child_by_field_name("value")
    elif head.type == "assignment_expression" and text_of(field(head, "operator")) == "=":
        name, start = field(head, "left"), field(head, "right")
    else:
        return None
    if name is None or start is None or name.type != "identifier" or condition.type != "binary_expression":
        return None
    counted = bare(field(condition, "left"))
    if text_of(counted) != text_of(name) or text_of(field(condition, "operator")) not in ("<", "<="):
        return None
    if loop_step(update, text_of(name)) != "1" and not re.search(r"(\+=|\+)\s*1$", text_of(update)):
        return None
    body, variable = field(node, "body"), scopes.of(counted)
    if variable is None or any(span_of(body).holds(span_of(change)) for change in variable.changes):
        return None
    return SerialLoop(node, variable, start, condition, field(condition, "right"), update, body)


@dataclass(frozen=True)
class MemoryAccess:
    """One access to global memory.

    Attributes:
        node: the expression.
        pointer: what the address is counted from; None if it is not known.
        offset: elements from there; None if it is not known.
        written: it writes, perhaps after reading.
    """

    node: Node
    pointer: CudaVariable | None
    offset: Polynomial | None
    written: bool

    def may_touch(self, other: "MemoryAccess") -> bool:
        """Return True if both may mean the same array by its own name."""
        return self.pointer is None or other.pointer is None or self.pointer is other.pointer


@dataclass(frozen=True)
class MemoryUse:
    """Finds the accesses of a kernel, and refuses what could hide one."""

    scopes: Scopes

    @cached_property
    def indices(self) -> Indices:
        """Return the reader of the kernel's indices."""
        return Indices(self.scopes)

    def accesses(self, node: Node) -> list[MemoryAccess]:
        """Return all accesses to global memory in a node.

        Raises:
            NotApplicableError: there may be others, or effects beside them.
        """
        found: list[MemoryAccess] = []
        for n in walk(node):
            if n.type == "subscript_expression" and (one := self._subscript(n)) is not None:
                found.append(one)
            elif n.type == "pointer_expression" and text_of(n).startswith("*"):
                found.append(self._access(n, self.indices.of(field(n, "argument"))))
            elif n.type == "pointer_expression" and not self._is_loaded(n):
                raise NotApplicableError("an address is taken")
            elif n.type == "call_expression" and (element := self.indices.element(n)) is not None:
                found.append(self._access(n, element[1]))
            elif n.type == "call_expression":
                self._check_call(n)
                found += self._loads(n)
            elif n.type in NAMES:
                self._check_pointer(n)
            elif n.type in ("gnu_asm_expression", "lambda_expression", "new_expression", "preproc_ifdef", "preproc_if"):
                raise NotApplicableError(n.type)
        return found

    def _subscript(self, node: Node) -> MemoryAccess | None:
        """Return an access; None for an element of a thread's own array, of constant memory, or of a part of one."""
        target = bare(field(node, "argument"))
        if target.type == "subscript_expression" and self._is_own(target):
            return None
        if target.type in NAMES:
            variable = self.scopes.of(target)
            if self._is_own(target):
                return None
            indices = field(node, "indices").named_children
            if variable is not None and variable.pointer and len(indices) == 1:
                return self._access(node, self.indices.of(target) + self.indices.of(indices[0]))
        raise NotApplicableError("an array of unknown form")

    def _is_own(self, node: Node) -> bool:
        while node.type == "subscript_expression":
            node = bare(field(node, "argument"))
        variable = self.scopes.of(node) if node.type == "identifier" else None
        if variable is None:
            return text_of(node) in self.scopes.tree.constant_arrays
        return variable.array

    def _access(self, node: Node, address: Polynomial) -> MemoryAccess:
        pointers = [v for v in self.scopes.variables if v.pointer and address.terms.get((v.symbol,)) == 1]
        written = is_written(node)
        if len(pointers) != 1 or not self._is_settled(pointers[0], node):
            return MemoryAccess(node, None, None, written)
        offset = address - self.indices.of_symbol(pointers[0])
        loaded = {v.symbol for v in self.scopes.variables if v.pointer and not v.read_only} & offset.names()
        return MemoryAccess(node, pointers[0], None if written and loaded else offset, written)

    def _is_settled(self, pointer: CudaVariable, use: Node) -> bool:
        """Return True for a parameter that is only moved ahead, outside of loops, before it is used."""
        for change in pointer.changes:
            outer, moved = change.parent, change.parent is not None and "+=" in text_of(change.parent)
            while outer is not None and outer.type not in ("for_statement", "while_statement", "do_statement"):
                outer = outer.parent
            if not moved or outer is not None or change.start_byte > use.start_byte:
                return False
        return pointer.declaration is None

    def _is_loaded(self, node: Node) -> bool:
        call = node.parent.parent if node.parent is not None else None
        return call is not None and call.type == "call_expression" and self._moves(call)

    def _moves(self, call: Node) -> bool:
        name = text_of(field(call, "function"))
        return name in _LOADS or _writes(name)

    def _loads(self, call: Node) -> Iterator[MemoryAccess]:
        if self._moves(call):
            address = field(call, "arguments").named_children[0]
            if address.type != "pointer_expression":
                yield self._access(call, self.indices.of(address))

    def _check_call(self, call: Node) -> None:
        """Refuse calls that may do more than compute a value from values."""
        name = text_of(field(call, "function"))
        if self._moves(call) or name.startswith(("static_cast", "reinterpret_cast")):
            return
        if _IMPURE.match(name) or self.scopes.tree.collective(f"{name}("):
            raise NotApplicableError(f"a call of {name}")
        given = (self.scopes.of(n) for n in field(call, "arguments").named_children if n.type == "identifier")
        if any("*" in kind for v in given if v is not None for kind in self.scopes.tree.members(v.type).values()):
            raise NotApplicableError("a struct with a pointer is handed on")
        short = name.split("<")[0].split("::")[-1]
        for node in walk(self.scopes.tree.root):
            macro = node.type == "preproc_function_def" and text_of(field(node, "name")) == name
            if macro and _STATEMENT.search(text_of(node).partition(")")[2]):
                raise NotApplicableError(f"the macro {name}")
            if node.type == "function_definition" and (head := node.child_by_field_name("declarator")) is not None:
                called = text_of(head).split("(")[0].strip("*& ") == short
                if called and (re.search(r"[*&\[]", text_of(head)) or _OWN.search(text_of(node))):
                    raise NotApplicableError(f"a call of {name}")

    @cached_property
    def _hiding(self) -> set[str]:
        """Return macros without parameters that stand for more than a value."""
        return {
            text_of(field(node, "name"))
            for node in walk(self.scopes.tree.root)
            if node.type == "preproc_def" and (value := node.child_by_field_name("value")) is not None
            if _STATEMENT.search(text_of(value)) and "Idx" not in text_of(value)
        }

    def _check_pointer(self, name: Node) -> None:
        """Refuse pointers that go where their uses cannot be followed."""
        if text_of(name) in self._hiding:
            raise NotApplicableError("a macro hides an access")
        variable, parent = self.scopes.of(name), name.parent
        if variable is None or not variable.pointer or parent is None:
            return
        while parent.type in ("binary_expression", "parenthesized_expression", "cast_expression"):
            if parent.type == "binary_expression" and text_of(field(parent, "operator")) in _COMPARISONS:
                return
            parent = parent.parent or parent
        if parent.type == "argument_list" and parent.parent is not None:
            called = text_of(field(parent.parent, "function"))
            if not (self._moves(parent.parent) or called.startswith("reinterpret_cast")):
                raise NotApplicableError("a pointer is handed on")


def is_written(node: Node) -> bool:
    """Return True if an expression is the target of an assignment, of a count, of a store or of an atomic operation."""
    parent = node.parent
    while parent is not None and parent.type in ("parenthesized_expression", "pointer_expression"):
        node, parent = parent, parent.parent
    if node.type == "call_expression" and _writes(text_of(field(node, "function"))):
        return True
    if parent is None:
        return False
    if parent.type == "assignment_expression":
        return field(parent, "left") == node
    if parent.type == "argument_list" and parent.parent is not None and parent.named_children[0] == node:
        return _writes(text_of(field(parent.parent, "function")))
    return parent.type == "update_expression"


def _writes(function: str) -> bool:
    """Return True for functions that write to the address that is their first argument."""
    return function in _STORES or function.startswith("atomic")


def assignment_ahead(use: MemoryUse, loop: Node) -> Node | None:
    """Return the assignment, by `=` and to one place, ahead of a loop with only declarations between; None without."""
    before = loop.prev_named_sibling
    while before is not None and before.type in ("declaration", "comment") and not use.accesses(before):
        before = before.prev_named_sibling
    inner = before.named_children[0] if before is not None and before.type == "expression_statement" else None
    if inner is None or inner.type != "assignment_expression" or text_of(field(inner, "operator")) != "=":
        return None
    return inner if field(inner, "right").type != "assignment_expression" else None
