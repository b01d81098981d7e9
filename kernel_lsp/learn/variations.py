"""Variants of a kernel's task with other sizes, for a policy to learn on. Pure: a target in, targets out.

One entry of all cases is a half, or three quarters, of what the workload says: smaller, so that no variant needs more
memory or time. An entry need not be a size, nor go with others: the kernel itself must be right on the variant, and
the variant's strength is measured like that of any workload, before anything is paid by it.

Captures have no variants, for the shapes and numbers that one records belong together in a way that it does not tell;
nor has a workload whose contract says that callers use the listed sizes alone. Element types are not changed, for
nothing tells from outside that the launch, the tolerance and the kernel all hold for another; nor are kernels fused.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from kernel_lsp.judge.target import Target
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.python import python_ast
from kernel_lsp.workload.constants import constants_of, with_constants, with_numbers

LEAST = 32
"""Numbers below are left as they are: they are seldom sizes, and cases that are small are so to test the edges."""
_SHARES = ((1, 2), (3, 4))
_LISTED_ONLY = re.compile(r"\blisted_sizes\b")
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.LShift: operator.lshift,
}
_MOST_SHIFT = 62


@dataclass(frozen=True, slots=True)
class SizeVariant:
    """A target with other sizes; `change` says which, as in `rows * 3/4`."""

    target: Target
    change: str


def variations(target: Target, most: int) -> list[SizeVariant]:
    """Return at most so many variants of a target: half of each entry, the largest entry first, then three quarters."""
    found: list[SizeVariant] = []
    for text, change in _other_texts(target):
        if len(found) == most:
            break
        found.append(SizeVariant(_with_text(target, text), change))
    return found


def _other_texts(target: Target) -> Iterator[tuple[str, str]]:
    """Yield other texts of the workload file, each with what is changed."""
    workload = target.workload
    text = workload.source.text
    if workload.captured or _LISTED_ONLY.search(text):
        return
    if workload.problem:
        written = {name: value for name, value in constants_of(text).items() if value >= LEAST}
        for over, under in _SHARES:
            for name in _largest_first(written):
                changed = {name: written[name] * over // under}
                yield with_constants(text, changed, written), f"{name} * {over}/{under}"
        return
    entries = _entries(text)
    for over, under in _SHARES:
        for name in _largest_first({name: max(found.values()) for name, found in entries.items()}):
            numbers = {node: value * over // under for node, value in entries[name].items()}
            yield with_numbers(text, numbers), f"{name} * {over}/{under}"


def _with_text(target: Target, text: str) -> Target:
    """Return a target whose workload file has another text; where that is the kernel file too, so has this."""
    workload = target.workload
    file = SourceFile(workload.source.path, text)
    source = file if workload.in_kernel_file else target.source
    return replace(target, source=source, workload=replace(workload, source=file))


def _largest_first(values: dict[str, int]) -> list[str]:
    return sorted(values, key=lambda name: (-values[name], name))


def _entries(text: str) -> dict[str, dict[ast.expr, int]]:
    """Return the numbers from `LEAST` on of each entry in CASES, where they are written out."""
    found: dict[str, dict[ast.expr, int]] = {}
    for node in python_ast(text).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="CASES")], value=cases)
                | ast.AnnAssign(target=ast.Name(id="CASES"), value=ast.expr() as cases)
            ):
                for name, value in _written(cases):
                    number = _number(value)
                    if number is not None and number >= LEAST:
                        found.setdefault(name, {})[value] = number
            case _:
                pass
    return found


def _written(cases: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the entries of a list of `dict(name=value)` or `{"name": value}`."""
    for case in cases.elts if isinstance(cases, (ast.List, ast.Tuple)) else ():
        match case:
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words):
                yield from ((word.arg, word.value) for word in words if word.arg is not None)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield key.value, value
            case _:
                pass


def _number(node: ast.expr) -> int | None:
    """Return the value of an expression that is a whole number by itself, such as `4096`, `3 * 1024` or `1 << 20`."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            a, b = _number(left), _number(right)
            if a is None or b is None or (isinstance(operation, ast.LShift) and not 0 <= b <= _MOST_SHIFT):
                return None
            return _OPERATIONS[type(operation)](a, b)
        case _:
            return None
