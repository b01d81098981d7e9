"""Let a block do the work of a kernel that is launched with one thread, or one thread a block.

Its loops are shared out among 1024 threads where there is one block, else among 256: a block for each row. The analysis
is that of rows (`parallel_rows`): a loop is shared out if its iterations only meet in sums, products and extremes, and
write elements of their own. The first thread alone does what is done once. Launches of threads that leave at once, but
for the first, count as launches of one.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses import vectorize
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse
from kernel_lsp.refine.rewrites.reading.thread_rows import thread_macros
from kernel_lsp.refine.rewrites.reductions.first_thread import unguarded
from kernel_lsp.refine.rewrites.reductions.row_sharing import RowSharing
from kernel_lsp.refine.rewrites.reductions.team import block_team
from kernel_lsp.refine.rewrites.writing.insertions import defined_before
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import text_of

_ORIGIN = "rewrite:one_thread"
_ALONE, _EACH = 1024, 256  # threads of a block, where there is one, and where there are many
_PLACE = re.compile(r"threadIdx|blockDim|__shared__|\bclock")
_BLOCK = re.compile(r"blockIdx|gridDim")


def _launched(threads: int, site: LaunchSite) -> list[Edit]:
    return [site.with_block(str(threads))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with more threads for its block, or for each of them; first with 128-bit loads."""
    for single in unguarded(kernel_file, workload_file, kernel):
        yield from (replace(one, origin=_ORIGIN) for one in followed_by(single, kernel, device, rewrite))
    try:
        tree = KernelTree(kernel_file, kernel)
        hidden = thread_macros(tree.root)
        if tree.collective(tree.body) or kernel.launch_bounds or _PLACE.search(text_of(tree.body)):
            return
        if any(re.search(rf"\b{name}\b", text_of(tree.body)) for name in hidden):
            return
        sites = find_launches(tree, workload_file)
        if sites is None or not all(site.is_single(site.block) for site in sites):
            return
        alone = all(site.is_single(site.grid) for site in sites)
        if not alone and not _BLOCK.search(text_of(tree.body)):
            return
        team = block_team(tree)
        sharing = RowSharing(MemoryUse(Scopes(tree)), None, team, set(), None)
        sharing.block(tree.body)
        if not sharing.shared:
            return
        edits = [*sharing.edits, *([defined_before(tree, sharing.helpers)] if sharing.helpers else [])]
        threads = _ALONE if alone else _EACH
        files = relaunched(tree, workload_file, sites, edits, partial(_launched, threads))
    except LookupError:
        return
    label = f"{threads} threads in place of one{'' if alone else ' a block'}"
    found = Candidate(kernel.language, *files, label, _ORIGIN)
    yield from followed_by(found, kernel, device, vectorize.rewrite, 1)
    yield found
