"""Give each row of a kernel whose threads walk a row each to a warp or a block, whose threads share it out.

Threads that walk a row each read a whole row's length apart: every load of a warp touches 32 places. In the new kernel
the threads of a warp, or of a block, take the elements of one row in turn. All of them compute what belongs to the row
as a whole, in the same way, and combine what a loop gathers; one writes what is written once a row. A loop is shared
out if its iterations only meet in sums, products and extremes, and write elements of their own; another one is run by
every thread, or keeps the kernel as it is. Where a thread may read what another one wrote, they meet at a barrier.
"""

from collections.abc import Iterator
from functools import partial

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses import cache_row, vectorize
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, indent_at, whole_line
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import ThreadRows, find_thread_rows
from kernel_lsp.refine.rewrites.reductions.row_sharing import RowSharing
from kernel_lsp.refine.rewrites.reductions.team import Team, block_team, warp_team
from kernel_lsp.refine.rewrites.writing.insertions import defined_before
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import span_of, text_of

_THREADS = 128  # of a block whose former size is not known, or no whole number of warps
_WHY = {
    "warp": "// One warp a row: its threads read neighbouring elements.",
    "block": "// One block a row: its threads read neighbouring elements.",
}


def _numbered(tree: KernelTree, rows: ThreadRows, team: Team) -> list[Edit]:
    """Return the edits that number teams in place of threads."""
    text = tree.file.text
    edits = [Edit(whole_line(text, span_of(node)), "") for node in rows.feeding]
    edits.append(Edit(span_of(rows.value), team.row))
    if rows.update is not None:
        edits.append(Edit(span_of(rows.update), team.teams))
    statement = rows.variable.declaration
    if statement is None:
        raise NotApplicableError("a parameter")
    while statement.parent is not None and statement.parent != tree.body:
        statement = statement.parent
    pad = indent_at(text, statement.start_byte)
    head = f"{_WHY[team.name]}\n{pad}"
    lane = f"const int {team.first} = threadIdx.x % 32;\n{pad}" if team.first.isidentifier() else ""
    return [*edits, Edit(Span(statement.start_byte, statement.start_byte), head + lane)]


def _shared_out(tree: KernelTree, use: MemoryUse, rows: ThreadRows, team: Team) -> list[Edit]:
    sharing = RowSharing(use, rows.symbol, team, set(rows.feeding), rows.guard)
    sharing.block(tree.body)
    if not sharing.shared:
        raise NotApplicableError("no loop over a row")
    edits = [*sharing.edits, *_numbered(tree, rows, team)]
    return [*edits, defined_before(tree, sharing.helpers)] if sharing.helpers else edits


def _launched(rows: ThreadRows, team: Team, site: LaunchSite) -> list[Edit]:
    """Return the edits of one launch: a team for each row, of whole warps."""
    threads = site.threads()
    count = site.spelled(rows.limit) if rows.limit is not None else None
    whole = threads is not None and threads % 32 == 0 and threads <= 1024
    size = threads if whole and threads is not None else _THREADS
    per_block = size // team.threads if team.threads else 1
    grid, block = (closed(text_of(site.sizes(node)[0])) for node in (site.grid, site.block))
    if count is not None or (rows.limit is not None and not whole):
        blocks = site.ceil_div(count or f"{grid} * {block}", per_block)
    elif whole or per_block == 1:  # as many rows as before: nothing says where they end
        blocks = f"{grid} * {team.threads if team.threads and whole else block}"
    else:
        raise NotApplicableError("the number of rows is not known")
    edits = [site.with_grid(blocks)]
    return edits if whole else [*edits, site.with_block(str(size))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with a warp, and with a block, for each row; then both with the rewrites of rows that follow."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.collective(tree.body):
            return
        use = MemoryUse(Scopes(tree))
        rows = find_thread_rows(use)
        sites = find_launches(tree, workload_file)
        if sites is None or not all(site.flat for site in sites):
            return
        if kernel.launch_bounds and any((site.threads() or 1) % 32 for site in sites):
            return
    except LookupError:
        return
    found: list[Candidate] = []
    for team in (warp_team(tree), block_team(tree)):
        try:
            edits = _shared_out(tree, use, rows, team)
            files = relaunched(tree, workload_file, sites, edits, partial(_launched, rows, team))
        except LookupError:
            continue
        found.append(Candidate(kernel.language, *files, f"one {team.name} a row", "rewrite:parallel_rows"))
    yield from found
    for further, most in ((vectorize.rewrite, 1), (cache_row.rewrite, None)):
        for candidate in found:
            yield from followed_by(candidate, kernel, device, further, most)
