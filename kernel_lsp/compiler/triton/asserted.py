"""Chooses assumed constants of a kernel so that its static assertions hold. Worker processes only."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from kernel_lsp.compiler.triton.parameter_types import CompiledParameter, From

_POWERS = tuple(1 << exponent for exponent in range(11))
_MOST_NAMES = 2  # that are changed for one assertion


def meeting(
    asserted: Sequence[ast.expr], parameters: Sequence[CompiledParameter], settled: Mapping[str, Any]
) -> list[CompiledParameter]:
    """Return the parameters with other values for assumed integers where a static assertion is false.

    The values are numbers of the assertion and powers of two, nearest first; those for which neither it nor an
    assertion before it is false.

    Args:
        asserted: the conditions of the kernel's assertions.
        parameters: all that it is compiled with, but for those in `settled`.
        settled: the values of an autotuner's configuration.
    """
    constants = [one for one in parameters if one.type == "constexpr"]
    free = {one.name for one in constants if one.known is From.GUESS and type(one.value) is int}
    values = dict(settled) | {one.name: one.value for one in constants}
    for number, condition in enumerate(asserted, start=1):
        if _is_false(condition, values):
            tries = _changes(condition, values, free)
            values = next((tried for tried in tries if not _any_false(asserted[:number], tried)), values)
    return [replace(one, value=values[one.name]) if one.name in free else one for one in parameters]


def _changes(condition: ast.expr, values: Mapping[str, Any], free: set[str]) -> Iterator[dict[str, Any]]:
    """Yield all values with other numbers for the free names in a condition."""
    names = sorted({n.id for n in ast.walk(condition) if isinstance(n, ast.Name)} & free)[:_MOST_NAMES]
    numbers = {n.value for n in ast.walk(condition) if isinstance(n, ast.Constant) and type(n.value) is int}
    ways = [sorted({*_POWERS, *numbers}, key=lambda number, near=values[name]: abs(number - near)) for name in names]
    yield from ({**values, **dict(zip(names, way, strict=True))} for way in product(*ways))


def _any_false(asserted: Sequence[ast.expr], values: Mapping[str, Any]) -> bool:
    return any(_is_false(condition, values) for condition in asserted)


def _is_false(condition: ast.expr, values: Mapping[str, Any]) -> bool:
    """Return True if a condition is false for these values; False where they do not tell."""
    expression = compile(ast.fix_missing_locations(ast.Expression(condition)), "<assertion>", "eval")
    try:
        return not eval(expression, {"__builtins__": {"min": min, "max": max}}, dict(values))
    except Exception:  # it depends on more than constants
        return False
