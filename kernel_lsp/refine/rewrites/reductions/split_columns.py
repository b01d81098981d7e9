"""Share out the rows that one thread sums up for its column among the threads of a block, which cover several columns.

A thread for each column leaves most of the GPU idle when there are few columns and many rows, as in the gradient of a
bias. In the new kernel a block covers a few neighbouring columns, enough for whole sectors of memory, and its threads
with one `threadIdx.x` take the rows of one column in turn. They combine their values in shared memory, in an order that
is always the same. Loops that write elements of the column are shared out in the same way. Threads beyond the last
column repeat it, so that all meet at barriers, and write nothing.
"""

import re
from collections.abc import Iterator
from functools import partial

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, indent_at, only_returns, whole_line
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import ThreadRows, find_thread_rows
from kernel_lsp.refine.rewrites.reductions.row_sharing import RowSharing
from kernel_lsp.refine.rewrites.reductions.team import column_team
from kernel_lsp.refine.rewrites.writing.insertions import defined_before, unwrapped
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of

_BLOCKS = ((8, 64), (16, 32), (32, 32))  # columns, and threads for each: 8 floats are a sector


def _shared_out(tree: KernelTree) -> tuple[KernelTree, ThreadRows, bool]:
    """Return the kernel with its loops shared out, but the test of the column's number still in place.

    The third value is True if these loops write to memory.
    """
    use = MemoryUse(Scopes(tree))
    rows = find_thread_rows(use)
    declaration = rows.variable.declaration
    if rows.guard is None or rows.end is None or declaration is None or rows.update is not None:
        raise NotApplicableError("no limit")
    if bare(field(field(rows.guard, "condition"), "value")).child_by_field_name("operator") is None:
        raise NotApplicableError("a condition of another form")
    if re.search(r"&&|\|\|", text_of(field(rows.guard, "condition"))):
        raise NotApplicableError("another condition beside the limit")
    column, limit = tree.fresh("column"), closed(text_of(rows.end))
    team = column_team(tree, column, limit)
    sharing = RowSharing(use, rows.symbol, team, set(rows.feeding), rows.guard)
    sharing.block(tree.body)
    if not sharing.combines:
        raise NotApplicableError("nothing is summed up over rows")
    pad = indent_at(tree.file.text, declaration.start_byte)
    kind = rows.variable.type
    lines = [
        "// A block sums up a few columns, so that there are enough threads; those past the end repeat the last one.",
        f"const {kind} {column} = blockIdx.x * blockDim.x + threadIdx.x;",
    ]
    start = Span(declaration.start_byte, declaration.start_byte)
    edits = [Edit(whole_line(tree.file.text, span_of(node)), "") for node in rows.feeding]
    edits += [Edit(start, "".join(f"{line}\n{pad}" for line in lines)), Edit(span_of(rows.value), team.row)]
    return tree.edited(*sharing.edits, *edits, defined_before(tree, team.text)), rows, sharing.writes


def _without_guard(tree: KernelTree, rows: ThreadRows) -> KernelTree:
    """Return the kernel without the test, which would keep threads from a barrier."""
    wanted = text_of(field(rows.guard, "condition")) if rows.guard is not None else ""
    guard = next(
        n for n in tree.body.named_children if n.type == "if_statement" and text_of(field(n, "condition")) == wanted
    )
    body = field(guard, "consequence")
    if only_returns(body):
        return tree.edited(Edit(whole_line(tree.file.text, span_of(guard)), ""))
    return tree.edited(Edit(span_of(guard), unwrapped(tree, guard, body)))


def _launched(rows: ThreadRows, writes: bool, columns: int, threads: int, site: LaunchSite) -> list[Edit]:
    count = site.spelled(rows.limit) if rows.limit is not None else None
    if count is None and writes:
        raise NotApplicableError("blocks of repeated columns alone would read what others write")
    if count is None:
        grid, block = (closed(text_of(site.sizes(node)[0])) for node in (site.grid, site.block))
        count = f"{grid} * {block}"
    return [site.with_grid(site.ceil_div(count, columns)), site.with_block(str(columns), str(threads))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 64 threads for each of 8 columns in a block, with 32 for each of 16, and of 32."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.collective(tree.body) or kernel.launch_bounds:
            return
        shared, rows, writes = _shared_out(tree)
        done = _without_guard(shared, rows)
        sites = find_launches(done, workload_file)
        if sites is None or not all(site.flat for site in sites):
            return
        for columns, threads in _BLOCKS:
            change = partial(_launched, rows, writes, columns, threads)
            files = relaunched(done, workload_file, sites, [], change)
            label = f"{threads} threads for each of {columns} columns"
            yield Candidate(kernel.language, *files, label, "rewrite:split_columns")
    except LookupError:
        return
