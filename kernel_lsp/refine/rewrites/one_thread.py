"""Let a block do the work of a kernel that is launched as one thread: its loops are shared out among 1024 threads.

The same analysis as for rows (`parallel_rows`): a loop is shared out if its iterations only meet in sums, products and
extremes, and write elements of their own. The first thread alone does what is done once.
"""

import re
from collections.abc import Iterator

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by, vectorize
from kernel_lsp.refine.rewrites.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.row_sharing import RowSharing
from kernel_lsp.refine.rewrites.scopes import Scopes
from kernel_lsp.refine.rewrites.serial_loops import MemoryUse
from kernel_lsp.refine.rewrites.team import block_team, defined_before
from kernel_lsp.refine.rewrites.thread_rows import thread_macros
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import text_of

_THREADS = 1024
_PLACE = re.compile(r"threadIdx|blockIdx|blockDim|gridDim|__shared__|\bclock")


def _is_single(site: LaunchSite) -> bool:
    """Return True for a launch of one thread."""
    sizes = [text_of(site.bound.get(n.id, n)) for size in (site.grid, site.block) for n in site.sizes(size)]
    return all(text == "1" for text in sizes)


def _launched(site: LaunchSite) -> list[Edit]:
    return [site.with_block(str(_THREADS))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with a block of 1024 threads; first with 128-bit loads."""
    try:
        tree = KernelTree(kernel_file, kernel)
        hidden = thread_macros(tree.root)
        if tree.collective(tree.body) or kernel.launch_bounds or _PLACE.search(text_of(tree.body)):
            return
        if any(re.search(rf"\b{name}\b", text_of(tree.body)) for name in hidden):
            return
        sites = find_launches(tree, workload_file)
        if sites is None or not all(_is_single(site) for site in sites):
            return
        team = block_team(tree)
        sharing = RowSharing(MemoryUse(Scopes(tree)), None, team, set(), None)
        sharing.block(tree.body)
        if not sharing.shared:
            return
        edits = [*sharing.edits, *([defined_before(tree, team.text)] if sharing.combines else [])]
        files = relaunched(tree, workload_file, sites, edits, _launched)
    except LookupError:
        return
    found = Candidate(kernel.language, *files, f"{_THREADS} threads in place of one", "rewrite:one_thread")
    yield from followed_by(found, kernel, device, vectorize.rewrite, 1)
    yield found
