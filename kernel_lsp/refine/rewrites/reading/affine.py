"""Indices of a CUDA kernel as polynomials: which neighbours a loop or a thread touches, and what is at one address.

`inp + (b * T + t) * C` and the index `j` together are `inp + C*T*b + C*t + j`, however the kernel spells them: through
constants, casts, macros, or functions of one `return`. Anything but sums and products, as `i / T`, is one unknown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import bare, expression
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.source.trees import field, span_of, text_of, walk

_INTEGER = re.compile(r"(-?0[xX][0-9a-fA-F]+|-?\d+)[uUlL]*")
_NEAR = 4  # elements
_DEPTH = 24  # of names that stand for others


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of unknowns: the factor of each product, by its unknowns in order. No factor is 0."""

    terms: Mapping[tuple[str, ...], int]

    def __add__(self, other: "Polynomial") -> "Polynomial":
        return _sum({key: self.terms.get(key, 0) + other.terms.get(key, 0) for key in {*self.terms, *other.terms}})

    def __sub__(self, other: "Polynomial") -> "Polynomial":
        return self + number(-1) * other

    def __mul__(self, other: "Polynomial") -> "Polynomial":
        found: dict[tuple[str, ...], int] = {}
        for left, n in self.terms.items():
            for right, m in other.terms.items():
                key = tuple(sorted(left + right))
                found[key] = found.get(key, 0) + n * m
        return _sum(found)

    def __str__(self) -> str:
        parts = ["*".join([*([str(n)] if n != 1 or not key else []), *key]) for key, n in sorted(self.terms.items())]
        return "+".join(parts) or "0"

    @property
    def value(self) -> int | None:
        """Return the number that it is, if it has no unknowns."""
        return self.terms.get((), 0) if set(self.terms) <= {()} else None

    def names(self) -> set[str]:
        """Return all unknowns, and the names within those that are no sums or products."""
        return {word for key in self.terms for unknown in key for word in re.findall(r"[\w.@]+", unknown)}

    def factor(self, unknown: str) -> "Polynomial | None":
        """Return what one unknown is multiplied by; None if it is no multiple of that unknown plus the rest."""
        found: dict[tuple[str, ...], int] = {}
        for key, n in self.terms.items():
            if unknown in key:
                rest = list(key)
                rest.remove(unknown)
                found[tuple(rest)] = n
        factor = _sum(found)
        rest = self - factor * symbol(unknown)
        return None if unknown in factor.names() | rest.names() else factor


def _sum(terms: Mapping[tuple[str, ...], int]) -> Polynomial:
    return Polynomial({key: n for key, n in terms.items() if n})


def is_near(factor: Polynomial | None) -> bool:
    """Return True if an index that grows by `factor` from one access to the next stays within the same sectors."""
    return factor is not None and factor.value is not None and 0 < abs(factor.value) <= _NEAR


def number(value: int) -> Polynomial:
    """Return a number as a polynomial."""
    return _sum({(): value})


def symbol(name: str) -> Polynomial:
    """Return one unknown as a polynomial."""
    return Polynomial({(name,): 1})


def thread_index(axis: str) -> Polynomial:
    """Return a thread's number in the whole grid along `x`, `y` or `z`."""
    return symbol(f"blockIdx.{axis}") * symbol(f"blockDim.{axis}") + symbol(f"threadIdx.{axis}")


@dataclass(frozen=True)
class _Given:
    """Values of a macro's or function's parameters, and the byte offset of its use; empty in the kernel's own text."""

    values: Mapping[str, Polynomial]
    at: int | None


_OWN_TEXT = _Given({}, None)


@dataclass(frozen=True)
class Indices:
    """Reads the index expressions of a kernel.

    Attributes:
        scopes: its variables.
        within: node outside of which constants are unknowns, as macros are then; None to look up all.
    """

    scopes: Scopes
    within: Node | None = None

    def of_symbol(self, variable: CudaVariable) -> Polynomial:
        """Return a variable itself as a polynomial."""
        return symbol(variable.symbol)

    def of_value(self, variable: CudaVariable) -> Polynomial:
        """Return a constant's value; the variable itself if it has none."""
        return self.of(variable.constant) if variable.constant is not None else symbol(variable.symbol)

    def of(self, node: Node) -> Polynomial:
        """Return an expression of the kernel as a polynomial."""
        return self._read(node, _OWN_TEXT, _DEPTH)

    def _read(self, node: Node, given: _Given, depth: int) -> Polynomial:
        node = bare(node)
        if node.type == "number_literal" and (match := _INTEGER.fullmatch(text_of(node))):
            return number(int(match[1], 16 if "x" in match[1].lower() else 10))
        if node.type == "identifier":
            return self._named(node, given, depth)
        if node.type == "unary_expression" and text_of(field(node, "operator")) == "-":
            return number(-1) * self._read(field(node, "argument"), given, depth)
        if node.type == "binary_expression":
            return self._combined(node, given, depth)
        if node.type == "call_expression" and depth and (found := self._called(node, given, depth)) is not None:
            return found
        return symbol(self._spelled(node, given, depth))

    def _named(self, node: Node, given: _Given, depth: int) -> Polynomial:
        name = text_of(node)
        if name in given.values:
            return given.values[name]
        variable = self.scopes.named(name, node.start_byte if given.at is None else given.at)
        if self.within is not None and not self._is_within(variable):
            return symbol(name if variable is None else variable.symbol)
        if variable is None:
            value = self.scopes.tree.constants.get(name)
            return self._read(value, _OWN_TEXT, depth - 1) if value is not None and depth else symbol(name)
        if variable.constant is not None and depth and variable.constant.type != "initializer_list":
            found = self._read(variable.constant, _OWN_TEXT, depth - 1)
            if self._keeps(variable, found):
                return found
        return symbol(variable.symbol)

    def _is_within(self, variable: CudaVariable | None) -> bool:
        declaration = variable.declaration if variable is not None else None
        return self.within is not None and declaration is not None and span_of(self.within).holds(span_of(declaration))

    def _keeps(self, constant: CudaVariable, value: Polynomial) -> bool:
        """Return True if nothing that a constant was made from changes while the constant can be named."""
        unknown, end = value.names(), constant.scope.end_byte
        return not any(
            constant.start <= change.start_byte < end
            for one in self.scopes.variables
            if one.changes and one.symbol in unknown
            for change in one.changes
        )

    def _combined(self, node: Node, given: _Given, depth: int) -> Polynomial:
        operator = text_of(field(node, "operator"))
        left, right = (self._read(field(node, side), given, depth) for side in ("left", "right"))
        if operator == "+":
            return left + right
        if operator == "-":
            return left - right
        if operator == "*":
            return left * right
        if operator == "<<" and right.value is not None and 0 <= right.value < 32:
            return left * number(1 << right.value)
        if left.value is not None and right.value and min(left.value, right.value) >= 0:
            known = {"/": left.value // right.value, "%": left.value % right.value, ">>": left.value >> right.value}
            if operator in known:
                return number(known[operator])
        return symbol(f"({left}{operator}{right})")

    def _called(self, node: Node, given: _Given, depth: int) -> Polynomial | None:
        parameters, value = self._functions.get(text_of(field(node, "function")), ((), None))
        if value is None or (inner := self._inner(node, parameters, given, depth)) is None:
            return None
        return self._read(value, inner, depth - 1)

    def _inner(self, call: Node, parameters: Sequence[str], given: _Given, depth: int) -> _Given | None:
        arguments = field(call, "arguments").named_children
        if len(parameters) != len(arguments):
            return None
        values = [self._read(one, given, depth) for one in arguments]
        return _Given(dict(zip(parameters, values, strict=True)), call.start_byte if given.at is None else given.at)

    def element(self, call: Node) -> tuple[Node, Polynomial] | None:
        """Return what a macro's call stands for if that is an element: the array's name, and the whole address."""
        parameters, value = self._functions.get(text_of(field(call, "function")), ((), None))
        value = bare(value) if value is not None else None
        if value is None or value.type != "subscript_expression":
            return None
        array, indices = bare(field(value, "argument")), field(value, "indices").named_children
        given = self._inner(call, parameters, _OWN_TEXT, _DEPTH)
        if array.type != "identifier" or len(indices) != 1 or given is None:
            return None
        return array, self._read(array, given, _DEPTH) + self._read(indices[0], given, _DEPTH)

    def _spelled(self, node: Node, given: _Given, depth: int) -> str:
        """Return one spelling of what is no sum or product."""
        if node.type == "field_expression" or not node.children:
            return "".join(text_of(node).split())
        parts: list[str] = []
        for child in node.children:
            if child.type in ("identifier", "binary_expression", "parenthesized_expression", "subscript_expression"):
                parts.append(f"({self._read(child, given, depth)})")
            elif child.type != "comment":
                parts.append(self._spelled(child, given, depth))
        return "".join(parts)

    @cached_property
    def _functions(self) -> dict[str, tuple[tuple[str, ...], Node]]:
        """Return parameters and value of each macro and of each function that only returns an expression."""
        found: dict[str, tuple[tuple[str, ...], Node]] = {}
        for node in walk(self.scopes.tree.root):
            if node.type == "preproc_function_def" and (value := node.child_by_field_name("value")) is not None:
                names = tuple(text_of(n) for n in field(node, "parameters").named_children)
                if (result := expression(text_of(value))) is not None:
                    found[text_of(field(node, "name"))] = names, result
            elif node.type == "function_definition":
                block = node.child_by_field_name("body")
                body = block.named_children if block is not None else []
                if len(body) == 1 and body[0].type == "return_statement" and body[0].named_child_count == 1:
                    head = field(node, "declarator")
                    if head.type == "function_declarator":
                        shown = field(head, "parameters").named_children
                        names = tuple(re.findall(r"\w+", text_of(n))[-1] for n in shown)
                        found[text_of(field(head, "declarator"))] = names, body[0].named_children[0]
        return found
