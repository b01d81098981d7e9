"""Finds the sizes in a KernelBench file, and replaces them by others."""

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kernel_lsp.source.python import python_ast

_OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}

Case = Mapping[str, int]


def constants_of(text: str) -> dict[str, int]:
    """Return the integers above one in assignments to globals and in `get_inputs` and `get_init_inputs`, by name.

    Those in a list are `name[0]` and so on. Empty for a file that cannot be parsed.
    """
    return {name: place.value for name, place in _places(text).items()}


def with_constants(text: str, values: Case, written: Case) -> str:
    """Return the text with other values for the constants of these names that are `written` in it.

    Values that the text computes from them are not replaced.
    """
    places = _places(text)
    changed = [n for n in values if n in places and places[n].value == written[n] and values[n] != written[n]]
    return with_numbers(text, {places[name].node: values[name] for name in changed})


def with_numbers(text: str, numbers: Mapping[ast.expr, int]) -> str:
    """Return the text with a number in the place of each of these expressions, which are of its tree."""
    data = text.encode()
    starts = [0, *(match.end() for match in re.finditer(rb"\r\n|\n|\r", data))]
    for node in sorted(numbers, key=lambda one: (one.lineno, one.col_offset), reverse=True):
        first, last = starts[node.lineno - 1], starts[(node.end_lineno or node.lineno) - 1]
        end = last + (node.end_col_offset or node.col_offset)
        data = data[: first + node.col_offset] + str(numbers[node]).encode() + data[end:]
    return data.decode()


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a constant in the tree of its text, and its value."""

    node: ast.expr
    value: int


@lru_cache(maxsize=32)
def _places(text: str) -> Mapping[str, _Place]:
    try:
        return dict(_constants(python_ast(text)))
    except SyntaxError:
        return {}


def _constants(tree: ast.Module) -> Iterator[tuple[str, _Place]]:
    """Yield the sizes in a problem: integers in assignments to globals and in calls of `get_...`."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from _assigned(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield from _numbers(node.target.id, node.value)
        elif isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            parts = (part for part in ast.walk(node) if isinstance(part, ast.Constant))
            found = [place for part in parts if (place := _whole_number(part)) is not None]
            yield from ((f"{node.name}[{number}]", place) for number, place in enumerate(found))


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, _Place]]:
    if isinstance(target, ast.Name):
        yield from _numbers(target.id, value)
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        for one, of_it in zip(target.elts, value.elts, strict=False):
            yield from _assigned(one, of_it)


def _numbers(name: str, value: ast.expr) -> Iterator[tuple[str, _Place]]:
    if isinstance(value, (ast.Tuple, ast.List)):
        for number, part in enumerate(value.elts):
            yield from _numbers(f"{name}[{number}]", part)
    elif (place := _whole_number(value)) is not None:
        yield name, place


def _whole_number(node: ast.expr) -> _Place | None:
    """Return the place of an expression that is an integer above one by itself: `4096`, `1024 * 2`; else None."""
    value = _value(node)
    return None if value is None or value < 2 else _Place(node, value)


def _value(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as operation, right=right):
            a, b = _value(left), _value(right)
            return None if a is None or b is None else _OPERATIONS[type(operation)](a, b)
        case _:
            return None
