"""Give a flat launch whose number is divided into row and column two axes: the hardware counts both, nothing divides.

A GPU has no instruction for `i = n / width` and `j = n % width`. Two axes of threads have both numbers at hand, and the
rewrites of products, transposed copies and stencils, which look for two axes, follow in the same step. Where the rows
of each matrix of a batch are counted anew, `i = n / width % height`, the third axis of the grid counts the matrices.
"""

from collections.abc import Iterator
from functools import partial

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses import halo_tile, row_window, transpose_tile
from kernel_lsp.refine.rewrites.accesses.flat_division import Digit, FlatDivision, find_division
from kernel_lsp.refine.rewrites.products import tile_product
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    condition_parts,
    declaration_head,
    indent_at,
    only_returns,
    whole_line,
)
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import ThreadRows, compared, find_thread_rows
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.leftovers import without_declarators
from kernel_lsp.refine.rewrites.writing.spelling import closed, spelled
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of

_WIDTH, _HEIGHT = 32, 8  # threads of a block: whole warps along rows


def _declarator(digit: Digit) -> Node:
    """Return the declarator of a variable.

    Raises:
        NotApplicableError: the variable is not declared by one of a plain name.
    """
    node = digit.value.parent
    if node is None or node.type != "init_declarator" or field(node, "declarator").type != "identifier":
        raise NotApplicableError("a declaration of another form")
    return node


def _of_batch(digit: Digit) -> str:
    """Return the value of a part of the matrix's number."""
    value = "blockIdx.z"
    if digit.divisor.value != 1:
        value += f" / {closed(spelled(digit.divisor))}"
    return value if digit.base is None else f"{value} % {closed(spelled(digit.base))}"


def _on_axes(use: MemoryUse, rows: ThreadRows, division: FlatDivision) -> list[Edit]:
    """Return the edits of the kernel.

    Raises:
        NotApplicableError: its number or limit has another form.
    """
    tree, statement, guard = use.scopes.tree, rows.variable.declaration, rows.guard
    if statement is None or guard is None or len(statement.children_by_field_name("declarator")) != 1:
        raise NotApplicableError("several variables in a declaration")
    text, name = tree.file.text, rows.variable.name
    row, column = division.row.variable.name, division.column.variable.name
    if use.scopes.named(row, statement.start_byte) or use.scopes.named(column, statement.start_byte):
        raise NotApplicableError("names that are taken")
    width, height = spelled(division.width), spelled(division.count)
    gone = [_declarator(one) for one in (division.row, division.column, *division.unused)]
    of_row, of_column = (declaration_head(node.parent) for node in gone[:2] if node.parent is not None)
    heads = [
        f"{of_row}{row} = blockIdx.y * blockDim.y + threadIdx.y;",
        f"{of_column}{column} = blockIdx.x * blockDim.x + threadIdx.x;",
    ]
    if division.others:
        of_all = row if division.batches is None else f"(blockIdx.z * {closed(height)} + {row})"
        heads.append(f"{declaration_head(statement)}{name} = {of_all} * {closed(width)} + {column};")
    edits = [Edit(span_of(statement), f"\n{indent_at(text, statement.start_byte)}".join(heads))]
    edits += without_declarators(tree, gone)
    edits += [Edit(whole_line(text, span_of(node)), "") for node in rows.feeding]
    edits += [Edit(span_of(one.value), _of_batch(one)) for one in division.batch]
    leaves = only_returns(field(guard, "consequence"))
    for part in condition_parts(field(guard, "condition"), "||" if leaves else "&&"):
        tested = compared(part, ">=" if leaves else "<")
        if tested is not None and text_of(tested[0]) == name:
            test = ("{} >= {} || {} >= {}" if leaves else "{} < {} && {} < {}").format(row, height, column, width)
            return [*edits, Edit(Span(part.start_byte, part.end_byte), test)]
    raise NotApplicableError("a limit of another form")


def _launched(division: FlatDivision, site: LaunchSite) -> list[Edit]:
    amounts = (division.width, division.count, *([division.batches] if division.batches is not None else []))
    along, down, *batches = (site.spelled(amount) for amount in amounts)
    if along is None or down is None or None in batches:
        raise NotApplicableError("the size is not known at a launch")
    sizes = [site.ceil_div(along, _WIDTH), site.ceil_div(down, _HEIGHT), *filter(None, batches)]
    return [site.with_grid(*sizes), site.with_block(str(_WIDTH), str(_HEIGHT))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with two axes as tiles, where it is a product or a transposed copy; then as it is."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.threads_meet or kernel.launch_bounds:
            return
        use = MemoryUse(Scopes(tree))
        rows = find_thread_rows(use)
        division = find_division(use, rows)
        sites = find_launches(tree, workload_file)
        if sites is None or not all(site.along_x_alone for site in sites):
            return
        files = relaunched(tree, workload_file, sites, _on_axes(use, rows, division), partial(_launched, division))
    except LookupError:
        return
    found = Candidate(kernel.language, *files, "rows and columns on two axes", "rewrite:two_axes")
    for further in (tile_product.rewrite, transpose_tile.rewrite, row_window.rewrite, halo_tile.rewrite):
        yield from followed_by(found, kernel, device, further)
    yield found
