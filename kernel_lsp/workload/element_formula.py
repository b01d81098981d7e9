"""Reads the formula off a CUDA kernel that computes each element of its output from the same element of its inputs.

Such a kernel has no loop and stores once: `y[i] = x[i] * scale[c] + bias[c]`. Its formula in PyTorch is a draft's
reference. It shows what the text computes, mistakes included, but not where a kernel reads or writes past the end.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kernel_lsp.source.grammar import parse_cuda
from kernel_lsp.source.trees import field, text_of, walk
from kernel_lsp.workload.array_indices import ArrayIndex

if TYPE_CHECKING:
    from tree_sitter import Node

_ALONE = {  # functions of one number that PyTorch has
    **{name: name for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "sin", "cos", "erf", "abs", "floor", "ceil")},
    "fabs": "abs",
}
_PAIRS = {"max": ("maximum", "min"), "min": ("minimum", "max")}  # of two tensors, and the bound of `torch.clamp`
_CASTS = {
    *("__half2float", "__float2half", "__float2half_rn", "__bfloat162float", "__float2bfloat16", "__float2bfloat16_rn"),
    *("float", "double", "half", "__half", "__nv_bfloat16", "static_cast<float>", "static_cast<double>"),
}
_LOAD = "__ldg"
_LOOPS = {"for_statement", "while_statement", "do_statement", "switch_statement", "goto_statement"}
_ARITHMETIC = {"+", "-", "*", "/"}
_COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
_NUMBER = re.compile(r"(\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)[fF]?")


class _NoFormulaError(Exception):
    """The kernel is no formula of single elements that PyTorch has."""


def formula_of(
    text: str,
    output: str,
    inputs: Iterable[str],
    numbers: Iterable[str],
    indices: Mapping[str, ArrayIndex],
    extents: tuple[str, ...],
) -> str:
    """Return the formula of a kernel as an expression in PyTorch; empty where it is none of single elements.

    Args:
        text: the kernel's whole definition.
        output: name of the one array that it writes.
        inputs: names of the arrays that it reads.
        numbers: names of its floating-point parameters.
        indices: which inputs have one element for each row or column of the output.
        extents: names of the output's sizes.
    """
    root = parse_cuda(text.encode()).root_node
    try:
        stored, value, locals_ = _single_store(root, output)
        return _Translation(stored, frozenset(inputs), frozenset(numbers), indices, extents, locals_).formula(value)
    except (_NoFormulaError, LookupError):
        return ""


def _single_store(root: "Node", output: str) -> tuple[str, "Node", dict[str, "Node"]]:
    """Return the index of a kernel's one store, the value stored, and the value of each local that has only one."""
    stores: list[Node] = []
    locals_: dict[str, Node] = {}
    changed: set[str] = set()
    for node in walk(root):
        if node.type in _LOOPS or text_of(node) in ("__shared__", "__syncthreads"):
            raise _NoFormulaError
        if node.type == "if_statement" and not _is_guard(field(node, "condition")):
            raise _NoFormulaError  # else some elements are not stored, or not all in the same way
        if node.type == "init_declarator":
            name = text_of(field(node, "declarator"))
            changed |= {name} & locals_.keys()
            locals_[name] = field(node, "value")
        elif node.type == "update_expression":
            changed.add(text_of(field(node, "argument")))
        elif node.type == "assignment_expression":
            left = field(node, "left")
            if left.type == "subscript_expression":
                stores.append(node)
            changed.add(text_of(left))
    if len(stores) != 1 or text_of(field(stores[0], "operator")) != "=":
        raise _NoFormulaError
    left = field(stores[0], "left")
    if text_of(field(left, "argument")) != output or not re.search(r"[A-Za-z_]", _index(left)):
        raise _NoFormulaError  # another array, or always the same element
    known = {name: value for name, value in locals_.items() if name not in changed}
    return _index(left), field(stores[0], "right"), known


def _is_guard(condition: "Node") -> bool:
    """Return True if a condition only compares indices with sizes."""
    kinds = {"subscript_expression", "number_literal", "call_expression", "assignment_expression", "update_expression"}
    return not any(one.type in kinds or one.type in ("%", "/", "==", "!=") for one in walk(condition))


class _Translation:
    """The translation of one kernel's expressions; each method returns a text, and whether that is a tensor."""

    def __init__(
        self,
        stored: str,
        inputs: frozenset[str],
        numbers: frozenset[str],
        indices: Mapping[str, ArrayIndex],
        extents: tuple[str, ...],
        locals_: Mapping[str, "Node"],
    ) -> None:
        self._stored, self._inputs, self._numbers = stored, inputs, numbers
        self._indices, self._extents, self._locals = indices, extents, locals_
        self._of: dict[str, Callable[[Node], tuple[str, bool]]] = {
            "parenthesized_expression": self._parenthesised,
            "unary_expression": self._unary,
            "binary_expression": self._binary,
            "conditional_expression": self._conditional,
            "subscript_expression": self._element,
            "call_expression": self._call,
            "cast_expression": lambda node: self._translated(field(node, "value")),
            "number_literal": self._literal,
            "identifier": self._name,
        }

    def formula(self, value: "Node") -> str:
        text, is_tensor = self._translated(value)
        if not is_tensor:
            raise _NoFormulaError
        return text

    def _translated(self, node: "Node") -> tuple[str, bool]:
        translate = self._of.get(node.type)
        if translate is None:
            raise _NoFormulaError
        return translate(node)

    def _parenthesised(self, node: "Node") -> tuple[str, bool]:
        text, is_tensor = self._translated(node.named_children[0])
        return f"({text})", is_tensor

    def _unary(self, node: "Node") -> tuple[str, bool]:
        if text_of(field(node, "operator")) != "-":
            raise _NoFormulaError
        text, is_tensor = self._translated(field(node, "argument"))
        return f"-{text}", is_tensor

    def _binary(self, node: "Node") -> tuple[str, bool]:
        operator = text_of(field(node, "operator"))
        if operator not in _ARITHMETIC | _COMPARISONS:
            raise _NoFormulaError
        left, right = self._translated(field(node, "left")), self._translated(field(node, "right"))
        if operator == "/" and left[0].isdigit() and right[0].isdigit():
            raise _NoFormulaError  # of integers, rounded down
        return f"{left[0]} {operator} {right[0]}", left[1] or right[1]

    def _conditional(self, node: "Node") -> tuple[str, bool]:
        condition = self._translated(field(node, "condition"))
        if not condition[1]:
            raise _NoFormulaError
        chosen = [self._translated(field(node, part))[0] for part in ("consequence", "alternative")]
        return f"torch.where({condition[0]}, {', '.join(chosen)})", True

    def _element(self, node: "Node") -> tuple[str, bool]:
        name = text_of(field(node, "argument"))
        if name not in self._inputs:
            raise _NoFormulaError
        index = self._indices.get(name)
        if index is None and _index(node) == self._stored:
            return name, True
        if index is None or len(self._extents) != 2 or index.extent != self._extents[1]:
            raise _NoFormulaError
        return name if index.column else f"{name}[:, None]", True

    def _call(self, node: "Node") -> tuple[str, bool]:
        called = text_of(field(node, "function")).removeprefix("std::").removeprefix("::")
        given = [one for one in field(node, "arguments").named_children if one.type != "comment"]
        if called in (*_CASTS, _LOAD) and len(given) == 1:
            return self._translated(_pointed(given[0]) if called == _LOAD else given[0])
        plain = called.removeprefix("__").removesuffix("f")
        if plain in _ALONE and len(given) == 1:
            text, is_tensor = self._translated(given[0])
            if is_tensor:
                return f"torch.{_ALONE[plain]}({text})", True
        if (plain.removeprefix("f")) in _PAIRS and len(given) == 2:
            return self._pair(*_PAIRS[plain.removeprefix("f")], *map(self._translated, given))
        raise _NoFormulaError

    def _pair(self, both: str, bound: str, one: tuple[str, bool], other: tuple[str, bool]) -> tuple[str, bool]:
        if one[1] and other[1]:
            return f"torch.{both}({one[0]}, {other[0]})", True
        tensor, number = (one, other) if one[1] else (other, one)
        if not tensor[1]:
            raise _NoFormulaError
        return f"torch.clamp({tensor[0]}, {bound}={number[0]})", True

    def _literal(self, node: "Node") -> tuple[str, bool]:
        found = _NUMBER.fullmatch(text_of(node))
        if found is None:
            raise _NoFormulaError
        return f"{found[1]}0" if found[1].endswith(".") else found[1], False

    def _name(self, node: "Node") -> tuple[str, bool]:
        name = text_of(node)
        if name in self._numbers:
            return name, False
        if name not in self._locals:
            raise _NoFormulaError
        value = self._locals[name]
        text, is_tensor = self._translated(value)
        return (f"({text})" if value.type in ("binary_expression", "unary_expression") else text), is_tensor


def _index(node: "Node") -> str:
    """Return the index of a subscript, without spaces."""
    return re.sub(r"\s", "", text_of(field(node, "indices")))


def _pointed(pointer: "Node") -> "Node":
    """Return the element whose address is given: `x[i]` of `&x[i]`."""
    if pointer.type != "pointer_expression" or text_of(field(pointer, "operator")) != "&":
        raise _NoFormulaError
    return field(pointer, "argument")
