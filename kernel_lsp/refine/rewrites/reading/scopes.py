"""The variables of a CUDA kernel by scope: where each is declared, its type, its value, and where it changes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, written
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

NAMES = ("identifier", "field_expression")
"""What may name a variable."""
_BLOCKS = {"compound_statement", "for_statement", "lambda_expression"}


@dataclass(eq=False)
class CudaVariable:
    """A parameter or a local of a kernel, or a member of a parameter that is a struct.

    Attributes:
        name: its name; of a member, `parameter.member`.
        type: type without `const` and `__restrict__`; one `*` for each level of pointer.
        declaration: statement that declares it; None for a parameter.
        value: its first value, if the declaration has one.
        scope: node within which it can be named.
        start: byte offset from which on it can be named.
        array: an array of this thread's or of the block's own.
        restricted: a pointer that says `__restrict__`.
        read_only: declared `const`, as a pointer to what it does not change.
        changes: the nodes that change it after its declaration, in source order.
    """

    name: str
    type: str
    declaration: Node | None
    value: Node | None
    scope: Node
    start: int
    array: bool
    restricted: bool
    read_only: bool
    changes: list[Node] = attribute(default_factory=list)

    @property
    def pointer(self) -> bool:
        """Return True for a pointer."""
        return self.type.endswith("*")

    @property
    def constant(self) -> Node | None:
        """Return the value that it always has; None where it changes, or has none."""
        return None if self.changes or self.array else self.value

    @property
    def symbol(self) -> str:
        """Return a name that no other variable of the kernel has."""
        return self.name if self.declaration is None else f"{self.name}@{self.start}"


def _declared_type(text: str, declarator: str) -> str:
    text = re.sub(r"\b(const|constexpr|static|register|volatile|__restrict(?:__)?)\b", " ", text)
    return " ".join(text.replace("*", " ").split()) + "*" * (text.count("*") + declarator.count("*"))


@dataclass(frozen=True)
class Scopes:
    """All variables of one kernel."""

    tree: KernelTree

    @cached_property
    def variables(self) -> tuple[CudaVariable, ...]:
        """Return the kernel's parameters and locals, with what changes them."""
        found = [*self._parameters(), *self._locals()]
        for target in self._changed():
            if (variable := _innermost(found, text_of(target), target.start_byte)) is not None:
                variable.changes.append(target)
        return tuple(found)

    def of(self, name: Node) -> CudaVariable | None:
        """Return the variable that an identifier, or `parameter.member`, means; None for what is not declared here."""
        return self.named(text_of(name), name.start_byte)

    def named(self, name: str, at: int) -> CudaVariable | None:
        """Return the variable that a name means at a byte offset; None for what the kernel does not declare."""
        return _innermost(self.variables, name, at)

    def uses(self, variable: CudaVariable, within: Node) -> list[Node]:
        """Return the names in a node that mean the variable, without its declaration."""
        return [
            n
            for n in walk(within)
            if n.type in NAMES and text_of(n) == variable.name and n.start_byte >= variable.start
            if self.of(n) is variable
        ]

    def _parameters(self) -> Iterator[CudaVariable]:
        for one in self.tree.kernel.parameters:
            restricted, read_only = "restrict" in one.type, one.type.strip().startswith("const")
            kind, body = _declared_type(one.type, ""), self.tree.body
            yield CudaVariable(one.name, kind, None, None, body, body.start_byte, False, restricted, read_only)
            for name, member in self._members(one.name, kind).items():
                where = None, None, body, body.start_byte, False, False, member.startswith("const")
                yield CudaVariable(f"{one.name}.{name}", _declared_type(member, ""), *where)

    def _members(self, parameter: str, kind: str) -> dict[str, str]:
        """Return the members of a parameter that is a struct, if the kernel changes none of them."""
        changed = (text_of(one).split(".")[0] for one in self._changed())
        members = self.tree.members(kind)
        return {} if members and parameter in changed else members

    def _locals(self) -> Iterator[CudaVariable]:
        for node in walk(self.tree.body):
            if node.type != "declaration":
                continue
            scope = node.parent
            while scope is not None and scope.type not in _BLOCKS:
                scope = scope.parent
            kind = text_of(field(node, "type"))
            for declarator in node.children_by_field_name("declarator"):
                inner, array, stars = declarator, False, ""
                while (deeper := inner.child_by_field_name("declarator")) is not None:
                    array |= inner.type == "array_declarator"
                    stars += "*" if inner.type == "pointer_declarator" else ""
                    inner = deeper
                if inner.type == "identifier" and scope is not None:
                    value = declarator.child_by_field_name("value")
                    marks = "restrict" in text_of(declarator), text_of(node).startswith("const")
                    shown, at = _declared_type(kind, stars), declarator.end_byte
                    yield CudaVariable(text_of(inner), shown, node, value, scope, at, array, *marks)

    def _changed(self) -> Iterator[Node]:
        """Yield the names of what is assigned, counted up or down, or has its address taken."""
        for target in written(self.tree.body):
            if bare(target).type in NAMES:
                yield bare(target)
        for node in walk(self.tree.body):
            if node.type == "pointer_expression" and text_of(node).startswith("&"):
                yield from (n for n in [bare(field(node, "argument"))] if n.type in NAMES)


def _innermost(variables: Sequence[CudaVariable], wanted: str, at: int) -> CudaVariable | None:
    best: CudaVariable | None = None
    for one in variables:
        inside = one.scope.start_byte <= at < one.scope.end_byte
        seen = one.name == wanted and inside and one.start <= at
        if seen and (best is None or (one.scope.start_byte, one.start) >= (best.scope.start_byte, best.start)):
            best = one
    return best


def all_within(nodes: Sequence[Node], spans: Sequence[Span]) -> bool:
    """Return True if there are nodes, and each lies in one of the spans."""
    return bool(nodes) and all(any(span.holds(span_of(node)) for span in spans) for node in nodes)
