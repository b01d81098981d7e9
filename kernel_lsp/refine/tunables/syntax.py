"""Find the integer literals that a launch depends on, in CUDA C++ and in Python alike."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from tree_sitter import Node, Parser

from kernel_lsp.source import grammar
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import walk

_DIGITS = re.compile(r"\s*\(?\s*([1-9]\d*|0)(?=[uUlL]*\s*\)?\s*$)")
_OPAQUE = {"subscript", "subscript_expression", "attribute", "field_expression", "string", "string_literal"}


def parse_python(text: str) -> Node:
    """Return the root of the syntax tree of a Python file."""
    return grammar.parse_python(text.encode()).root_node


def parse_cuda(text: str) -> Node:
    """Return the root of the syntax tree of a CUDA C++ file."""
    # Not `grammar.parse_cuda`, which blanks some text first: here it is taken from the nodes.
    return Parser(grammar.cuda_grammar()).parse(text.encode()).root_node


def words(node: Node | None) -> str:
    """Return the source text of a node; empty for None."""
    return node.text.decode() if node is not None and node.text is not None else ""


def integer(node: Node | None) -> tuple[int, Span] | None:
    """Return value and span of a decimal integer, in optional parentheses and with an optional C suffix."""
    match = _DIGITS.match(words(node)) if node is not None else None
    if node is None or match is None:
        return None
    return int(match[1]), Span(node.start_byte + match.start(1), node.start_byte + match.end(1))


def ancestor(node: Node, *types: str) -> Node | None:
    """Return the nearest enclosing node of one of `types`."""
    at = node.parent
    while at is not None and at.type not in types:
        at = at.parent
    return at


class NumberRole(Enum):
    """The role of a number in its expression."""

    WHOLE = auto()  # the expression is this number
    DIVISOR = auto()  # things are cut into pieces of this size
    ROUNDING = auto()  # added before a division
    CAP = auto()  # upper or lower bound of something else
    FACTOR = auto()


@dataclass(frozen=True, slots=True)
class Number:
    """An integer literal that an expression depends on, and the constant through which it does."""

    value: int
    span: Span
    role: NumberRole
    name: str | None


Scope = Mapping[str, Node]


def numbers(node: Node, scope: Scope, role: NumberRole = NumberRole.WHOLE, name: str | None = None) -> Iterator[Number]:
    """Yield the literals that `node` depends on, following names through `scope` to their values."""
    if node.type in _OPAQUE:
        return
    if (found := integer(node)) is not None:
        yield Number(*found, role, name)
    elif node.type == "identifier":
        target = words(node)
        if target in scope:
            inner = {key: value for key, value in scope.items() if key != target}
            yield from numbers(scope[target], inner, role, target)
    elif node.type in {"binary_operator", "binary_expression"}:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operation = words(node.child_by_field_name("operator"))
        left_role, right_role = _operand_roles(operation, role)
        if left is not None and right is not None:
            yield from numbers(left, scope, left_role, None)
            yield from numbers(right, scope, right_role, None)
    elif node.type in {"call", "call_expression"}:
        yield from _call_numbers(node, scope)
    elif node.type in {"parenthesized_expression", "unary_operator", "unary_expression"}:
        for child in node.named_children:
            yield from numbers(child, scope, role, name)
    else:
        for child in node.named_children:
            yield from numbers(child, scope, NumberRole.FACTOR, None)


def _operand_roles(operation: str, role: NumberRole) -> tuple[NumberRole, NumberRole]:
    match operation:
        case "/" | "//":
            return NumberRole.FACTOR, NumberRole.DIVISOR
        case "+" | "-":
            return NumberRole.ROUNDING, NumberRole.ROUNDING
        case "*" if role in {NumberRole.DIVISOR, NumberRole.ROUNDING}:
            return role, role
        case _:
            return NumberRole.FACTOR, NumberRole.FACTOR


def _call_numbers(node: Node, scope: Scope) -> Iterator[Number]:
    called = words(node.child_by_field_name("function")).lower()
    arguments = node.child_by_field_name("arguments")
    for place, argument in enumerate(arguments.named_children if arguments is not None else ()):
        if "div" in called:
            role = NumberRole.DIVISOR if place else NumberRole.FACTOR
        elif called.rpartition("::")[2].startswith(("min", "max")):
            role = NumberRole.CAP
        else:
            role = NumberRole.FACTOR
        yield from numbers(argument, scope, role, None)


def python_scope(root: Node, at: Node) -> dict[str, Node]:
    """Return the values of names at `at`: assigned once in its functions or the module, or a parameter's default."""
    scope: dict[str, Node] = {}
    enclosing = [root]
    function = ancestor(at, "function_definition")
    while function is not None:
        enclosing.insert(1, function)
        function = ancestor(function, "function_definition")
    for owner in enclosing:
        seen: dict[str, list[Node]] = {}
        for node in walk(owner):
            if ancestor(node, "function_definition", "module") != owner and node != owner:
                continue
            if node.type == "assignment":
                target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
            elif node.type in {"default_parameter", "typed_default_parameter"}:
                target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            else:
                continue
            for name, given in _unpacked(target, value):
                seen.setdefault(words(name), []).append(given)
        scope |= {name: values[0] for name, values in seen.items() if len(values) == 1}
        for name, values in seen.items():
            if len(values) > 1:
                scope.pop(name, None)
    return scope


def _unpacked(target: Node | None, value: Node | None) -> Iterator[tuple[Node, Node]]:
    """Yield each name that an assignment sets and its value, for `a = x` and for `a, b = x, y`."""
    if target is None or value is None:
        return
    if target.type in ("pattern_list", "tuple_pattern") and value.type in ("expression_list", "tuple"):
        if target.named_child_count == value.named_child_count:
            for name, given in zip(target.named_children, value.named_children, strict=True):
                yield from _unpacked(name, given)
    elif target.type == "identifier":
        yield target, value


def cuda_scope(at: Node) -> dict[str, Node]:
    """Return the values of names at `at`: the initialised local variables of its function."""
    function = ancestor(at, "function_definition")
    scope: dict[str, Node] = {}
    for node in walk(function) if function is not None else ():
        if node.type == "init_declarator":
            target, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
            if target is not None and value is not None and target.type == "identifier":
                scope[words(target)] = value
    return scope


def dimensions(node: Node, scope: Scope) -> tuple[Node, ...]:
    """Return the expressions of a grid or block: from a tuple, a `dim3`, a lambda that returns a tuple, or a number."""
    if node.type == "identifier" and (value := scope.get(words(node))) is not None:
        if value.type in {"tuple", "argument_list", "initializer_list", "lambda", "call_expression"}:
            return dimensions(value, scope)
        return (node,)
    if node.type == "lambda" and (body := node.child_by_field_name("body")) is not None:
        return dimensions(body, scope)
    if node.type == "call_expression" and words(node.child_by_field_name("function")) == "dim3":
        arguments = node.child_by_field_name("arguments")
        return tuple(arguments.named_children) if arguments is not None else ()
    if node.type in {"tuple", "argument_list", "initializer_list"}:
        return tuple(child for child in node.named_children if child.type != "comment")
    return (node,)


def first(nodes: Iterator[Node], wanted: Callable[[Node], bool]) -> Node | None:
    """Return the first node that fulfils `wanted`, or None."""
    return next((node for node in nodes if wanted(node)), None)
