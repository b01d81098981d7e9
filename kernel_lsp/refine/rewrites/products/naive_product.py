"""Recognise products of matrices in which each thread sums up one element of the result from global memory.

A sum of anything that vanishes where both elements are 0 is taken, too, such as the squares of differences.
"""

import re
from collections.abc import Container
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare, condition_parts, only_returns, statements_of
from kernel_lsp.refine.rewrites.reading.reductions import TYPES, find_reductions
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, all_within
from kernel_lsp.refine.rewrites.reading.serial_loops import (
    MemoryAccess,
    MemoryUse,
    NotApplicableError,
    SerialLoop,
    serial_loop,
)
from kernel_lsp.refine.rewrites.reading.thread_rows import check_elsewhere, compared
from kernel_lsp.source.trees import field, span_of, text_of, walk

_PLACE = re.compile(r"threadIdx\.[xyz]|blockDim\.[xyz]|blockIdx\.[xy]|gridDim\.[xyz]")
_NEAR = re.compile(r"threadIdx\.[xy]|blockIdx\.[xy]|\(threadIdx\.x[/%](\w+)\)")
_TURNED = str.maketrans("/%", "%/")
_WIDE = re.compile(r"size_t|int64_t|long")
_VANISHING = {
    "__half2float", "__bfloat162float", "__ldg", "float", "double", "fabsf", "fabs", "abs", "sqrtf", "sqrt",
    "__hmul", "__hsub", "__hadd", "__fmul_rn", "fmaxf", "fminf", "fmax", "fmin", "max", "min",
}  # fmt: skip
"""Functions that are 0 where all of their arguments are."""


@dataclass(frozen=True)
class ProductAxis:
    """Rows or columns of the result.

    Attributes:
        variable: number of the thread's own.
        limit: how many there are, as the kernel's guard says.
        amount: the same.
    """

    variable: CudaVariable
    limit: Node
    amount: Polynomial

    @property
    def name(self) -> str:
        """Return the name of the number."""
        return self.variable.name

    @property
    def value(self) -> Node:
        """Return the value of the number."""
        assert self.variable.value is not None, "it was found by its value"
        return self.variable.value

    @property
    def statement(self) -> Node:
        """Return the statement that declares the number."""
        assert self.variable.declaration is not None, "it was found by its declaration"
        return self.variable.declaration


@dataclass(frozen=True)
class Operand:
    """The elements of one matrix that a product takes: `pointer[outer_factor * outer + depth_factor * k + rest]`.

    Attributes:
        nodes: the accesses.
        pointer: the matrix.
        outer_factor: elements from one row (of the left one) or column (of the right one) to the next.
        depth_factor: elements from one factor of a sum to the next.
        rest: what depends on neither.
        wide: the kernel indexes it with more than 32 bits.
    """

    nodes: tuple[Node, ...]
    pointer: CudaVariable
    outer_factor: Polynomial
    depth_factor: Polynomial
    rest: Polynomial
    wide: bool

    @property
    def outer_is_near(self) -> bool:
        """Return True if rows or columns lie side by side, not the factors of a sum."""
        return self.depth_factor.value != 1


@dataclass(frozen=True)
class NaiveProduct:
    """A product, of which each thread computes one element.

    Attributes:
        row: along y in the new kernel.
        column: along x: neighbours in memory.
        guard: statement that tests both numbers.
        leaves: the guard returns; its rest follows it.
        region: statements that run for elements of the result.
        loop: the sum.
        left: operand by rows.
        right: operand by columns.
        total: variable that gathers.
        total_uses: where the loop names it.
        hoisted: the sum may be gathered in that variable ahead of the guard.
        unused: declarations that nothing needs any more.
        feeding: declarations that only served for the numbers.
    """

    row: ProductAxis
    column: ProductAxis
    guard: Node
    leaves: bool
    region: list[Node]
    loop: SerialLoop
    left: Operand
    right: Operand
    total: CudaVariable
    total_uses: tuple[Node, ...]
    hoisted: bool
    unused: list[Node]
    feeding: list[Node]


def find_product(use: MemoryUse, kinds: Container[str] = TYPES) -> NaiveProduct:
    """Return a kernel as a product; `kinds` are the types that its sum may have.

    Raises:
        NotApplicableError: it is none.
    """
    guard, leaves, axes = guarded_axes(use)
    statements = statements_of(use.scopes.tree.body)
    at = statements.index(guard)
    region = statements[at + 1 :] if leaves else statements_of(field(guard, "consequence"))
    if not region or (not leaves and statements[at + 1 :]) or any(n.type != "declaration" for n in statements[:at]):
        raise NotApplicableError("work without regard to the limits")
    loops = [n for n in region if n.type == "for_statement"]
    if len(loops) != 1 or any(
        n.type in ("return_statement", "for_statement") for s in region if s != loops[0] for n in walk(s)
    ):
        raise NotApplicableError("several loops")
    loop = serial_loop(use.scopes, loops[0])
    if loop is None or use.indices.of(loop.start).value != 0 or "<=" in text_of(loop.condition):
        raise NotApplicableError("a loop of another form")
    totals = find_reductions(use.scopes, loop, kinds=kinds)
    if len(totals) != 1 or totals[0].operation != "+":
        raise NotApplicableError("no sum, or several")
    total = totals[0]
    row, column = _oriented(use, region, axes)
    left, right = _operands(use, loop, total.variable, row, column)
    _check_others(use, statements[:at], region, loop, [left.pointer, right.pointer], axes)
    hoisted = total.starts_neutral and total.variable.declaration in region and not total.variable.pointer
    feeding, unused = _served(use, loop, axes, total.variable.declaration if hoisted else None)
    hoisted = hoisted and total.variable.declaration in unused
    return NaiveProduct(
        row, column, guard, leaves, region, loop, left, right, total.variable, total.uses, hoisted, unused, feeding
    )


def guarded_axes(use: MemoryUse, *, alone: bool = True) -> tuple[Node, bool, list[ProductAxis]]:
    """Return the statement that tests two numbers of a thread, True if it returns, and both numbers.

    Args:
        use: of the kernel.
        alone: it tests nothing else.

    Raises:
        NotApplicableError: there is no such statement.
    """
    for node in use.scopes.tree.body.named_children:
        if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
            continue
        leaves = only_returns(field(node, "consequence"))
        axes = [
            _axis(use, part, leaves) for part in condition_parts(field(node, "condition"), "||" if leaves else "&&")
        ]
        found = [axis for axis in axes if axis is not None]
        if len(found) == 2 and (len(axes) == 2 or not alone) and _are_independent(use, *found):
            return node, leaves, found
    raise NotApplicableError("no limits of two numbers")


def _axis(use: MemoryUse, part: Node, leaves: bool) -> ProductAxis | None:
    tested = compared(part, ">=" if leaves else "<")
    name = bare(tested[0]) if tested is not None else part
    variable = use.scopes.of(name) if name.type == "identifier" else None
    if tested is None or variable is None or variable.constant is None or variable.declaration is None:
        return None
    known = use.indices.of(variable.constant)
    return None if _near(known) is None else ProductAxis(variable, tested[1], use.indices.of(tested[1]))


def _near(value: Polynomial) -> str | None:
    """Return the unknown that stands for a thread's number in indices: what differs between its neighbours.

    The number is `blockIdx.x * width + threadIdx.x`, or that with a part of a flat block, `threadIdx.x % width`; or the
    block's or thread's alone. None for any other.
    """
    near = next((one for place in ("threadIdx", "blockIdx") for one in sorted(_places(value)) if place in one), "")
    match = _NEAR.fullmatch(near)
    if match is None:
        return None
    if value == symbol(near):
        return near if match[1] is None else None
    for axis in "xy":
        width = (value - symbol(near)).factor(f"blockIdx.{axis}")
        if width is None or len(width.terms) != 1 or any("Idx" in name for name in width.names()):
            continue
        if value == width * symbol(f"blockIdx.{axis}") + symbol(near) and match[1] in (None, str(width)):
            return near
    return None


def _places(value: Polynomial) -> set[str]:
    """Return the unknowns of a number that a thread or block has by its place."""
    return {one for unknowns in value.terms for one in unknowns if "Idx" in one}


def _are_independent(use: MemoryUse, one: ProductAxis, other: ProductAxis) -> bool:
    """Return True if no place of a thread or block serves for both numbers, but for quotient and remainder of one."""
    first, second = (_places(use.indices.of(axis.value)) for axis in (one, other))
    halves = {a for a in first for b in second if a.translate(_TURNED) == b}
    rest = {name for place in first - halves for name in symbol(place).names()}
    return not first & second and not rest & {name for place in second for name in symbol(place).names()}


def _number(use: MemoryUse, axis: ProductAxis) -> str:
    """Return the unknown that stands for a number in indices."""
    near = _near(use.indices.of(axis.value))
    assert near is not None, "it was found by its value"
    return near


def _oriented(use: MemoryUse, region: list[Node], axes: list[ProductAxis]) -> tuple[ProductAxis, ProductAxis]:
    """Return rows and columns: neighbours along a row are neighbours in the result."""
    written = [a for node in region for a in use.accesses(node) if a.written]
    for one, other in ((axes[0], axes[1]), (axes[1], axes[0])):
        near = [a.offset.factor(_number(use, one)) for a in written if a.offset is not None]
        if near and len(near) == len(written) and all(by is not None and by.value == 1 for by in near):
            return other, one
    raise NotApplicableError("a result that does not lie by rows")


def _operands(
    use: MemoryUse, loop: SerialLoop, total: CudaVariable, row: ProductAxis, column: ProductAxis
) -> tuple[Operand, Operand]:
    accesses = use.accesses(loop.body)
    elements: dict[tuple[str, str], list[MemoryAccess]] = {}
    for one in accesses:
        if one.pointer is None or one.offset is None or one.written:
            raise NotApplicableError("an address that is not known")
        elements.setdefault((one.pointer.symbol, str(one.offset)), []).append(one)
    if len(elements) != 2:
        raise NotApplicableError("other accesses than to two operands")
    _check_sum(use, loop, total, accesses)
    found = [_operand(use, loop, same, row, column) for same in elements.values()]
    sides = dict(found)
    if set(sides) != {"left", "right"}:
        raise NotApplicableError("no product of rows and columns")
    return sides["left"], sides["right"]


def _operand(
    use: MemoryUse, loop: SerialLoop, same: list[MemoryAccess], row: ProductAxis, column: ProductAxis
) -> tuple[str, Operand]:
    """Return the side of an operand and the operand, from all accesses to its element."""
    offset, pointer = same[0].offset, same[0].pointer
    if offset is None or pointer is None or pointer.declaration is not None or pointer.changes:
        raise NotApplicableError("an address that is not known")
    value = {axis.name: use.indices.of(axis.value) for axis in (row, column)}
    depth = offset.factor(loop.variable.symbol)
    if depth is None or not depth.terms:
        raise NotApplicableError("an operand that does not depend on the sum")
    rest = offset - depth * symbol(loop.variable.symbol)
    for side, mine, other in (("left", row, column), ("right", column, row)):
        by = rest.factor(_number(use, mine))
        if by is None or not by.terms:
            continue
        rest = rest - by * value[mine.name]
        if any("Idx" in name and name != "blockIdx.z" for name in rest.names() | by.names() | depth.names()):
            raise NotApplicableError(f"`{other.name}` matters to the same operand")
        if by.value != 1 and depth.value != 1:
            raise NotApplicableError("an operand without neighbours")
        macros = (text_of(n) for n in use.scopes.tree.root.children if n.type.startswith("preproc_"))
        source = " ".join([text_of(use.scopes.tree.body), *macros])
        nodes = tuple(access.node for access in same)
        return side, Operand(nodes, pointer, by, depth, rest, bool(_WIDE.search(source)))
    raise NotApplicableError("an operand that depends on neither number")


def _check_sum(use: MemoryUse, loop: SerialLoop, total: CudaVariable, accesses: list[MemoryAccess]) -> None:
    """Refuse sums of what does not vanish with both elements: tiles are filled up with zeros."""
    gathered = [n for n in walk(loop.body) if n.type == "assignment_expression"]
    if len(gathered) != 1 or text_of(field(gathered[0], "left")) != total.name:
        raise NotApplicableError("other work in the sum")
    operator, value = text_of(field(gathered[0], "operator")), bare(field(gathered[0], "right"))
    elements = {a.node.id for a in accesses}
    if operator == "=" and value.type == "call_expression":  # `fmaf(a, b, total)`, or `__hadd(total, product)`
        given = field(value, "arguments").named_children
        factors = given[:2] if len(given) > 2 else [one for one in given if text_of(bare(one)) != total.name]
        vanishes = all(_vanishes(use, loop, factor, elements) for factor in factors)
    else:
        if operator == "=" and value.type == "binary_expression" and text_of(field(value, "operator")) == "+":
            sides = [bare(field(value, side)) for side in ("left", "right")]
            value = next((side for side in sides if text_of(side) != total.name), value)
        vanishes = operator in ("+=", "=") and _vanishes(use, loop, value, elements)
    counted = {n.id for n in walk(loop.body) if n.type == "identifier" and text_of(n) == loop.variable.name}
    inside = {n.id for a in accesses for n in walk(a.node)}
    if not vanishes or not counted <= inside:
        raise NotApplicableError("no sum of products")


def _vanishes(use: MemoryUse, loop: SerialLoop, node: Node, elements: set[int]) -> bool:
    """Return True for an expression that is 0 where all elements are."""
    node = bare(node)
    if node.id in elements:
        return True
    if node.type == "identifier":
        variable = use.scopes.of(node)
        value = variable.constant if variable is not None else None
        inside = value is not None and span_of(loop.body).holds(span_of(value))
        return value is not None and inside and _vanishes(use, loop, value, elements)
    if node.type == "binary_expression" and text_of(field(node, "operator")) in "+-*":
        left, right = field(node, "left"), field(node, "right")
        sides = [_vanishes(use, loop, side, elements) for side in (left, right)]
        if text_of(field(node, "operator")) != "*" or all(sides):
            return all(sides)
        return any(sides) and _is_finite(use, loop, left if sides[1] else right)
    if node.type == "call_expression" and _function(use, node) in _VANISHING:
        return all(_vanishes(use, loop, n, elements) for n in field(node, "arguments").named_children)
    return False


def _is_finite(use: MemoryUse, loop: SerialLoop, node: Node) -> bool:
    """Return True for an expression that is no infinity where all elements are 0, as `logf(element)` would be."""
    for n in walk(node):
        if n.type == "call_expression" or (n.type == "binary_expression" and text_of(field(n, "operator")) == "/"):
            return False
        variable = use.scopes.of(n) if n.type == "identifier" else None
        value = variable.constant if variable is not None else None
        if value is not None and span_of(loop.body).holds(span_of(value)) and not _is_finite(use, loop, value):
            return False
    return True


def _function(use: MemoryUse, call: Node) -> str:
    """Return the name of what is called, behind a macro of another name."""
    return use.scopes.tree.named_type(text_of(field(call, "function"))).removeprefix("std::")


def _check_others(
    use: MemoryUse,
    ahead: list[Node],
    region: list[Node],
    loop: SerialLoop,
    operands: list[CudaVariable],
    axes: list[ProductAxis],
) -> None:
    """Refuse operands that the kernel writes, and limits that are not known ahead of the guard."""
    for node in (*ahead, *region):
        for access in use.accesses(node):
            if access.written and (access.pointer is None or access.pointer in operands):
                raise NotApplicableError("an operand is written")
    known = {v.symbol for v in use.scopes.variables if v.declaration is None or v.declaration in ahead}
    for limit in (loop.limit, *(axis.limit for axis in axes)):
        if any("Idx" in name for name in use.indices.of(limit).names()) or use.accesses(limit):
            raise NotApplicableError("a limit that depends on the thread")
        for node in walk(limit):
            variable = use.scopes.of(node) if node.type == "identifier" else None
            if variable is not None and (variable.symbol not in known or variable.changes):
                raise NotApplicableError("a limit that is not known ahead")


def _served(
    use: MemoryUse, loop: SerialLoop, axes: list[ProductAxis], total: Node | None
) -> tuple[list[Node], list[Node]]:
    """Return declarations that only served for the numbers of the thread, and those that only served for the sum."""
    scopes = use.scopes
    gone = [span_of(axis.value) for axis in axes]
    feeding: list[Node] = []
    for one in reversed(scopes.variables):
        node = one.declaration
        if node is None or one.changes or one.value is None or not _PLACE.search(text_of(one.value)):
            continue
        uses = scopes.uses(one, scopes.tree.body)
        single = len(node.children_by_field_name("declarator")) == 1
        if single and all_within(uses, gone):
            feeding.append(node)
            gone.append(span_of(node))
    check_elsewhere(scopes, gone, _PLACE)
    unused = [total] if total is not None and len(total.children_by_field_name("declarator")) == 1 else []
    served = [span_of(loop.node)]
    for one in reversed(scopes.variables):
        node = one.declaration
        if node is None or not one.pointer or one.changes or len(node.children_by_field_name("declarator")) != 1:
            continue
        uses = scopes.uses(one, scopes.tree.body)
        if all_within(uses, served):
            unused.append(node)
            served.append(span_of(node))
    return feeding, unused
