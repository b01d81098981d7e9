"""Give a flat launch whose number is divided into row and column two axes: the hardware counts both, nothing divides.

A GPU has no instruction for `i = n / width` and `j = n % width`. Two axes of threads have both numbers at hand, and the
rewrites of products, transposed copies and stencils, which look for two axes, follow in the same step.
"""

from collections.abc import Iterator
from functools import partial

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by, halo_tile, row_window, tile_product, transpose_tile
from kernel_lsp.refine.rewrites.affine import Polynomial
from kernel_lsp.refine.rewrites.ast_cuda import KernelTree, indent_at, only_returns, whole_line
from kernel_lsp.refine.rewrites.flat_division import FlatDivision, find_division
from kernel_lsp.refine.rewrites.launch_sites import LaunchSite, closed, find_launches, relaunched, spelled
from kernel_lsp.refine.rewrites.scopes import Scopes
from kernel_lsp.refine.rewrites.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.thread_rows import ThreadRows, compared, condition_parts, find_thread_rows
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of

_WIDTH, _HEIGHT = 32, 8  # threads of a block: whole warps along rows


def _declared(division: FlatDivision) -> list[Node]:
    """Return the statements that declare quotient and remainder, which declare nothing else.

    Raises:
        NotApplicableError: one does.
    """
    found: list[Node] = []
    for one in (division.quotient, division.remainder):
        node = one.declaration
        if node is None or len(node.children_by_field_name("declarator")) != 1:
            raise NotApplicableError("several variables in a declaration")
        found.append(node)
    return found


def _on_axes(use: MemoryUse, rows: ThreadRows, division: FlatDivision) -> list[Edit]:
    """Return the edits of the kernel.

    Raises:
        NotApplicableError: its number or limit has another form.
    """
    tree, statement, guard = use.scopes.tree, rows.variable.declaration, rows.guard
    if statement is None or guard is None or len(statement.children_by_field_name("declarator")) != 1:
        raise NotApplicableError("several variables in a declaration")
    text, name = tree.file.text, rows.variable.name
    row, column = division.quotient.name, division.remainder.name
    if use.scopes.named(row, statement.start_byte) or use.scopes.named(column, statement.start_byte):
        raise NotApplicableError("names that are taken")
    width = spelled(use.indices.of(division.width))
    if "Idx" in width:
        raise NotApplicableError("a width that depends on the thread")
    pad = indent_at(text, statement.start_byte)
    of_row, of_column = _declared(division)
    heads = [
        f"{_head(of_row)} = blockIdx.y * blockDim.y + threadIdx.y;",
        f"{_head(of_column)} = blockIdx.x * blockDim.x + threadIdx.x;",
    ]
    edits = [Edit(span_of(statement), f"\n{pad}".join(heads))]
    edits += [Edit(whole_line(text, span_of(node)), "") for node in (*rows.feeding, of_column)]
    if division.others:
        value = f"{row} * {closed(width)} + {column}"
        edits.append(Edit(span_of(of_row), f"{_head(statement)} = {value};"))
        first = min(of_row.start_byte, of_column.start_byte)
        if any(first > n.start_byte for n in division.others):
            raise NotApplicableError("the number is used ahead of its parts")
    else:
        edits.append(Edit(whole_line(text, span_of(of_row)), ""))
    leaves = only_returns(field(guard, "consequence"))
    for part in condition_parts(field(guard, "condition"), "||" if leaves else "&&"):
        tested = compared(part, ">=" if leaves else "<")
        if tested is not None and text_of(tested[0]) == name:
            test = ("{} >= {} || {} >= {}" if leaves else "{} < {} && {} < {}").format(
                row, spelled(division.count), column, width
            )
            return [*edits, Edit(Span(part.start_byte, part.end_byte), test)]
    raise NotApplicableError("a limit of another form")


def _head(declaration: Node) -> str:
    """Return a declaration without its value."""
    start, declarator = declaration.start_byte, declaration.children_by_field_name("declarator")[0]
    end = field(declarator, "declarator").end_byte - start
    return text_of(declaration).encode()[:end].decode()


def _launched(count: Polynomial, width: Polynomial, site: LaunchSite) -> list[Edit]:
    along, down = site.spelled(width), site.spelled(count)
    if along is None or down is None:
        raise NotApplicableError("the size is not known at a launch")
    grid = site.with_grid(site.ceil_div(along, _WIDTH), site.ceil_div(down, _HEIGHT))
    return [grid, site.with_block(str(_WIDTH), str(_HEIGHT))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with two axes as tiles, where it is a product or a transposed copy; then as it is."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.collective(tree.body) or kernel.launch_bounds or "__shared__" in text_of(tree.body):
            return
        use = MemoryUse(Scopes(tree))
        rows = find_thread_rows(use)
        division = find_division(use, rows)
        sites = find_launches(tree, workload_file)
        if sites is None or any(text_of(n) != "1" for s in sites for k in (s.grid, s.block) for n in s.sizes(k)[1:]):
            return
        change = partial(_launched, division.count, use.indices.of(division.width))
        files = relaunched(tree, workload_file, sites, _on_axes(use, rows, division), change)
    except LookupError:
        return
    found = Candidate(kernel.language, *files, "rows and columns on two axes", "rewrite:two_axes")
    for further in (tile_product.rewrite, transpose_tile.rewrite, row_window.rewrite, halo_tile.rewrite):
        yield from followed_by(found, kernel, device, further)
    yield found
