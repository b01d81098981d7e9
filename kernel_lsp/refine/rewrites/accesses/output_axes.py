"""Axes of the grid that number a kernel's outputs, for the rewrite that gives several of them to one thread.

A number is the block's, `m = blockIdx.y`, the block's with that of something else, `m = blockIdx.y % count`, or the
thread's, `i = blockIdx.x * blockDim.x + threadIdx.x`, with a test against how many there are.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import symbol, thread_index
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare, condition_parts, only_returns
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import check_elsewhere, compared
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import field, span_of, text_of, walk


@dataclass(frozen=True)
class OutputAxis:
    """An axis of the grid that numbers outputs.

    Attributes:
        variable: the number.
        letter: `x`, `y` or `z`.
        count: how many there are, as an expression; None where the launch alone says it, so far.
        others: nodes of `blockIdx.y / count`.
        tested: the number in the kernel's test of a thread's number; None for a block's.
        aliases: declarations of names for the block's place that nothing but the number and `others` use.
    """

    variable: CudaVariable
    letter: str
    count: str | None
    others: tuple[Node, ...] = ()
    tested: Node | None = None
    aliases: tuple[Node, ...] = ()


def output_axes(use: MemoryUse) -> Iterator[OutputAxis]:
    """Yield the axes of the grid that a variable of the kernel alone, or with a quotient, goes along."""
    body = use.scopes.tree.body
    for variable in use.scopes.variables:
        value, declaration = variable.constant, variable.declaration
        if value is None or declaration is None or declaration.parent != body:
            continue
        if len(declaration.children_by_field_name("declarator")) != 1:
            continue
        for letter in "xyz":
            place = f"blockIdx.{letter}"
            aliases = list(_aliases(use, variable, place))
            made = [span_of(one.declaration) for one in aliases if one.declaration is not None]
            uses = [n for n in walk(body) if n.type == "field_expression" and text_of(n) == place]
            uses = [n for n in uses if not any(span.holds(span_of(n)) for span in made)]
            uses += [n for one in aliases for n in use.scopes.uses(one, body)]
            if use.indices.of(value) == symbol(place) and len(uses) == 1:
                yield OutputAxis(variable, letter, None)
            elif use.indices.of(value) == thread_index(letter):
                yield from _of_threads(use, variable, letter)
            elif (count := _divisor(use, value, place, "%")) is not None:
                others = tuple(n for n in walk(body) if _divisor(use, n, place, "/") == count)
                if len(uses) == 1 + len(others):
                    named = tuple(one.declaration for one in aliases if one.declaration is not None)
                    yield OutputAxis(variable, letter, count, others, None, named)


def _aliases(use: MemoryUse, number: CudaVariable, place: str) -> Iterator[CudaVariable]:
    """Yield the names for a block's place beside a number, each in a declaration of its own."""
    for one in use.scopes.variables:
        plain = one.constant is not None and use.indices.of(one.constant) == symbol(place)
        single = one.declaration is not None and len(one.declaration.children_by_field_name("declarator")) == 1
        if one is not number and plain and single:
            yield one


def _of_threads(use: MemoryUse, variable: CudaVariable, letter: str) -> Iterator[OutputAxis]:
    """Yield a thread's number with the limit that one condition of the kernel keeps it to, if there is one."""
    scopes, declaration = use.scopes, variable.declaration
    if declaration is None:
        return
    try:
        check_elsewhere(scopes, [span_of(declaration)], re.compile(rf"(threadIdx|blockIdx|blockDim|gridDim)\.{letter}"))
    except NotApplicableError:
        return
    for node in scopes.tree.body.named_children:
        if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
            continue
        leaves = only_returns(field(node, "consequence"))
        for part in condition_parts(field(node, "condition"), "||" if leaves else "&&"):
            tested = compared(part, ">=" if leaves else "<")
            number = bare(tested[0]) if tested is not None else part
            if tested is None or number.type != "identifier" or scopes.of(number) is not variable:
                continue
            if _is_known(use, tested[1]):
                yield OutputAxis(variable, letter, typed_limit(use, variable.type, tested[1]), (), number)
            return


def typed_limit(use: MemoryUse, kind: str, limit: Node) -> str:
    """Return a limit as an expression of the number's type, so that the smaller of both can be taken."""
    names = (use.scopes.of(n) for n in walk(limit) if n.type == "identifier")
    kinds = {one.type if one is not None else "int" for one in names}
    return text_of(limit) if kinds == {kind} else f"({kind}){closed(text_of(limit))}"


def _is_known(use: MemoryUse, limit: Node) -> bool:
    """Return True for a limit that is the same everywhere, in every thread."""
    if any("Idx" in name for name in use.indices.of(limit).names()) or use.accesses(limit):
        return False
    known = [use.scopes.of(n) for n in walk(limit) if n.type == "identifier"]
    return not any(one is not None and one.changes for one in known)


def _divisor(use: MemoryUse, node: Node, place: str, operator: str) -> str | None:
    """Return the parameter that a number of the block is divided by."""
    if node.type != "binary_expression" or text_of(field(node, "operator")) != operator:
        return None
    by = bare(field(node, "right"))
    known = use.scopes.of(by) if by.type == "identifier" else None
    if known is None or known.declaration is not None or known.changes:
        return None
    if use.indices.of(field(node, "left")) != symbol(place):
        return None
    return known.name


def count_of(axis: OutputAxis, sites: Sequence[LaunchSite], kernel: Kernel) -> str:
    """Return how many numbers there are, as the kernel or all of its launches say.

    Raises:
        NotApplicableError: none does, or more than one.
    """
    if axis.count is not None:
        return axis.count
    scalars = {p.name for p in kernel.parameters if "*" not in p.type}
    found = [
        {name for name, given in site.arguments.items() if name in scalars and given == _component(axis, site)}
        for site in sites
    ]
    same = set[str].intersection(*found)
    if len(same) != 1:
        raise NotApplicableError("the number of outputs is not known")
    return same.pop()


def _component(axis: OutputAxis, site: LaunchSite) -> str:
    """Return the size of the grid along an axis."""
    sizes = site.sizes(site.grid)
    at = "xyz".index(axis.letter)
    text = text_of(sizes[at]) if at < len(sizes) else "1"
    if axis.tested is None and not re.search(r"[A-Za-z_]", text):
        raise NotApplicableError("a number that may stand for anything")
    return text


def fewer_along(axis: OutputAxis, outputs: int, site: LaunchSite) -> list[Edit]:
    """Return the edits of a launch that needs a block for `outputs` of its former ones along an axis.

    Raises:
        NotApplicableError: its grid is not understood.
    """
    sizes, at = [text_of(n) for n in site.sizes(site.grid)], "xyz".index(axis.letter)
    parts = [_component(axis, site)]
    if axis.count is not None and axis.tested is None:
        parts = re.split(r"\s*\*\s*", parts[0])
        given = site.arguments.get(axis.count)
        if given not in parts or any(not re.fullmatch(r"[\w.]+(\[\w+\]|\(\w*\))?", part) for part in parts):
            raise NotApplicableError("a grid of another size")
        parts.sort(key=lambda part: part != given)
    fewer = closed(site.ceil_div(parts[0], outputs)) if len(parts) > 1 else site.ceil_div(parts[0], outputs)
    sizes[at] = " * ".join([*parts[1:], fewer])
    return [site.with_grid(*sizes)]
