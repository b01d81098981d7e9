"""Give a launch with two axes of threads one, where rows and columns only serve to number the elements of a matrix.

A loop over the grid, 128-bit accesses and sums of whole blocks ask for one axis. `row * width + column` is the thread's
number then, whichever axis the columns lay along.
"""

import re
from collections.abc import Iterator
from functools import partial

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses import vectorize
from kernel_lsp.refine.rewrites.products.naive_product import ProductAxis, guarded_axes
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, condition_parts, declaration_head, whole_line
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes, all_within
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import check_elsewhere
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_PLACE = re.compile(r"(threadIdx|blockDim|blockIdx|gridDim)\.[xyz]")
_THREADS = 256


def _elements(use: MemoryUse, row: ProductAxis, column: ProductAxis) -> list[Node]:
    """Return the expressions that are `row * width + column`."""
    number = use.indices.of(row.value) * column.amount + use.indices.of(column.value)
    found: list[Node] = []
    for node in walk(use.scopes.tree.body):  # outer ones first
        inside = any(span_of(one).holds(span_of(node)) for one in found)
        if node.type == "binary_expression" and not inside and use.indices.of(node) == number:
            found.append(node)
    return found


def _flat(use: MemoryUse, guard: Node, leaves: bool, row: ProductAxis, column: ProductAxis) -> list[Edit]:
    """Return the edits of the kernel.

    Raises:
        NotApplicableError: rows or columns serve for something else, too.
    """
    tree, scopes = use.scopes.tree, use.scopes
    elements = _elements(use, row, column)
    parts = list(condition_parts(field(guard, "condition"), "||" if leaves else "&&"))
    tests = [one for one in parts if any(span_of(one).holds(span_of(axis.limit)) for axis in (row, column))]
    if parts.index(tests[1]) != parts.index(tests[0]) + 1:
        raise NotApplicableError("something is tested between rows and columns")
    for axis in (row, column):
        taken = [span_of(n) for n in (*elements, *tests)]
        if not all_within(scopes.uses(axis.variable, tree.body), taken):
            raise NotApplicableError("rows and columns that serve for something else")
    if len({axis.statement.id for axis in (row, column)}) < 2 or not elements:
        raise NotApplicableError("two numbers in one declaration")
    check_elsewhere(scopes, [span_of(axis.statement) for axis in (row, column)], _PLACE)
    first, second = sorted((row, column), key=lambda axis: axis.statement.start_byte)
    named = _named(scopes, elements)
    name = named.name if named is not None else tree.fresh("i")
    line = f"{declaration_head(first.statement)}{name} = blockIdx.x * blockDim.x + threadIdx.x;"
    edits = [Edit(span_of(first.statement), line), Edit(whole_line(tree.file.text, span_of(second.statement)), "")]
    count = f"{closed(text_of(row.limit))} * {closed(text_of(column.limit))}"
    both = Span(_closed(tests[0], tests[1]).start_byte, _closed(tests[1], tests[0]).end_byte)
    edits.append(Edit(both, f"{name} >= {count}" if leaves else f"{name} < {count}"))
    if named is not None and named.declaration is not None:
        edits.append(Edit(whole_line(tree.file.text, span_of(named.declaration)), ""))
        elements = [n for n in elements if n != named.value]
    return [*edits, *(Edit(span_of(n), name) for n in elements)]


def _closed(node: Node, other: Node) -> Node:
    """Return an expression with the parentheses around it alone, and not around another one."""
    while (outer := node.parent) is not None and outer.type == "parenthesized_expression":
        if span_of(outer).holds(span_of(other)):
            break
        node = outer
    return node


def _named(scopes: Scopes, elements: list[Node]) -> CudaVariable | None:
    """Return the variable that has an element's number, alone in its declaration."""
    for one in scopes.variables:
        alone = one.declaration is not None and len(one.declaration.children_by_field_name("declarator")) == 1
        if alone and one.constant in elements and sum(v.name == one.name for v in scopes.variables) == 1:
            return one
    return None


def _launched(axes: tuple[ProductAxis, ProductAxis], site: LaunchSite) -> list[Edit]:
    amount = site.spelled(axes[0].amount * axes[1].amount)
    if amount is None:
        raise NotApplicableError("the size is not known at a launch")
    return [site.with_grid(site.ceil_div(amount, _THREADS), "1"), site.with_block(str(_THREADS), "1")]


def flattened(kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel) -> Iterator[Candidate]:
    """Yield the kernel with one axis, if it can have that."""
    try:
        tree = KernelTree(kernel_file, kernel)
        sites = find_launches(tree, workload_file)
        if tree.threads_meet or kernel.launch_bounds or sites is None:
            return
        use = MemoryUse(Scopes(tree))
        guard, leaves, axes = guarded_axes(use, alone=False)
    except LookupError:
        return
    for row, column in (axes, reversed(axes)):
        try:
            edits = _flat(use, guard, leaves, row, column)
            files = relaunched(tree, workload_file, sites, edits, partial(_launched, (row, column)))
        except LookupError:
            continue
        yield Candidate(kernel.language, *files, "one axis of threads", "rewrite:one_axis")
        return


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with one axis and 128-bit accesses, then as it is."""
    for flat in flattened(kernel_file, workload_file, kernel):
        yield from followed_by(flat, kernel, device, vectorize.rewrite, 1)
        yield flat
