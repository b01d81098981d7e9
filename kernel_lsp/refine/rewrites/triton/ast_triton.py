"""Queries on a kernel's syntax tree that the Triton rewrites share."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.grammar import parse_python
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.trees import field, span_of, text_of, walk

_ASSIGNMENTS = ("assignment", "augmented_assignment")


@dataclass(frozen=True)
class TritonTree:
    """A Triton kernel of a text with its syntax tree."""

    file: SourceFile
    kernel: Kernel

    @cached_property
    def root(self) -> Node:
        """Return the root node of the whole file."""
        return parse_python(self.file.text.encode()).root_node

    @cached_property
    def function(self) -> Node:
        """Return the kernel's definition without its decorators.

        Raises:
            LookupError: there is none at the place where the kernel stood.
        """
        for node in walk(self.root):
            if node.type == "function_definition" and span_of(field(node, "name")) == self.kernel.name_span:
                return node
        raise LookupError(self.kernel.name)

    @cached_property
    def body(self) -> Node:
        """Return the kernel's block."""
        return field(self.function, "body")

    def calls(self, name: str) -> Iterator[Node]:
        """Yield calls of `tl.NAME` in the kernel."""
        for node in walk(self.body):
            if node.type == "call" and text_of(field(node, "function")) in (f"tl.{name}", f"triton.language.{name}"):
                yield node

    @cached_property
    def assignments(self) -> list[tuple[Node, Node]]:
        """Return target and value of every assignment in the kernel, in order."""
        return [
            (field(n, "left"), value)
            for n in walk(self.body)
            if n.type in _ASSIGNMENTS and (value := n.child_by_field_name("right")) is not None
        ]

    @cached_property
    def per_program(self) -> set[str]:
        """Return the variables that differ from program to program."""
        found: set[str] = set()
        for _ in range(2):  # a second time for values carried around loops
            for target, value in self.assignments:
                if "program_id" in text_of(value) or names(value) & found:
                    found |= names(target)
        return found

    def pointer(self, expression: Node) -> str | None:
        """Return the parameter that an address is derived from."""
        parameters = {p.name for p in self.kernel.parameters}
        seen: set[str] = set()
        todo = list(ordered_names(expression))
        while todo:
            name = todo.pop(0)
            if name in parameters and not any(p.name == name and p.constexpr for p in self.kernel.parameters):
                return name
            if name not in seen:
                seen.add(name)
                todo += [
                    n for target, value in self.assignments if text_of(target) == name for n in ordered_names(value)
                ]
        return None


def ordered_names(node: Node) -> Iterator[str]:
    """Yield variables read in the node, in order; attributes, modules and keywords are left out."""
    for n in walk(node):
        parent = n.parent
        if n.type != "identifier" or parent is None:
            continue
        attribute = parent.type == "attribute"
        keyword = parent.type == "keyword_argument" and parent.child_by_field_name("name") == n
        owner = attribute and parent.child_by_field_name("object") == n and text_of(n) not in ("tl", "triton")
        if owner or not (attribute or keyword):
            yield text_of(n)


def names(node: Node) -> set[str]:
    """Return all variables in the node."""
    return set(ordered_names(node))


def arguments(call: Node) -> tuple[list[Node], dict[str, Node]]:
    """Return the positional arguments, and the values of the named ones."""
    given = [n for n in field(call, "arguments").named_children if n.type != "comment"]
    named = {text_of(field(n, "name")): field(n, "value") for n in given if n.type == "keyword_argument"}
    return [n for n in given if n.type != "keyword_argument"], named
