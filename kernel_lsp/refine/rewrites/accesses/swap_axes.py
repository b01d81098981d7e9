"""Let neighbouring threads take neighbouring elements: interchange what the two axes of threads are for.

Where `threadIdx.x` runs over the outer dimension of most arrays, each warp touches 32 places far apart. Two axes of a
launch are interchanged by name, in the kernel and in its launches. In a flat launch whose number is divided into two,
`i = n / width` and `j = n % width`, the quotient and the remainder change places. Each element is still computed by one
thread, in the same way.
"""

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.accesses.flat_division import find_division
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, is_near
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, in_loop
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import ThreadRows, find_thread_rows, thread_macros
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed, spelled
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import span_of, text_of, walk

_PLACE = re.compile(r"(threadIdx|blockIdx|blockDim|gridDim)\.([xy])")
_BY_WARP = re.compile(
    r"__shfl|__ballot|__any|__all|__match|__reduce|__syncwarp|warpSize|wmma|\basm\b|cooperative|\bcg::"
)
_REPEATED = 8  # an access in a loop counts as so many


def gained(use: MemoryUse, body: Node, now: str, then: str) -> int:
    """Return how many more accesses stay within few sectors if threads are neighbours in `then`, not in `now`."""
    gain = 0
    for access in use.accesses(body):
        if access.offset is None:
            continue
        was, will = (_is_narrow(access.offset.factor(one)) for one in (now, then))
        gain += (will - was) * (_REPEATED if in_loop(access.node) else 1)
    return gain


def _is_narrow(factor: Polynomial | None) -> bool:
    """Return True if the threads of a warp touch neighbours, or all of them one element."""
    return is_near(factor) or (factor is not None and not factor.terms)


def _interchanged(tree: KernelTree) -> list[Edit]:
    """Return the edits that call x y, and y x."""
    macros = thread_macros(tree.root)
    edits: list[Edit] = []
    for node in walk(tree.body):
        if node.type == "identifier" and text_of(node) in macros:
            raise NotApplicableError("a macro depends on the thread")
        if node.type == "field_expression" and (match := _PLACE.fullmatch(text_of(node))):
            edits.append(Edit(Span(node.end_byte - 1, node.end_byte), "y" if match[2] == "x" else "x"))
    return edits


def _turned(site: LaunchSite) -> list[Edit]:
    grid, block = ([text_of(n) for n in site.sizes(node)] for node in (site.grid, site.block))
    if len(grid) < 2 or len(block) < 2:
        raise NotApplicableError("a flat launch")
    edits = [site.with_grid(grid[1], grid[0])]
    return edits if block[0] == block[1] else [*edits, site.with_block(block[1], block[0])]


def _flat(use: MemoryUse, rows: ThreadRows) -> list[Edit]:
    """Return the edits that make the quotient of a flat number its remainder, and the remainder its quotient.

    Raises:
        NotApplicableError: the number is used in another way, or the kernel does not gain.
    """
    found = find_division(use, rows)
    if found.others or found.unused or found.batches is not None:
        raise NotApplicableError("the number itself is used")
    now, then = (str(use.indices.of_value(one.variable)) for one in (found.column, found.row))
    if gained(use, use.scopes.tree.body, now, then) <= 0:
        raise NotApplicableError("neighbours are neighbours")
    name, length = rows.variable.name, closed(spelled(found.count) or "")
    return [
        Edit(span_of(found.row.value), f"{name} % {length}"),
        Edit(span_of(found.column.value), f"{name} / {length}"),
    ]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with its two axes interchanged, if more of its accesses then go to neighbours."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if _BY_WARP.search(text_of(tree.body)):
            return
        use = MemoryUse(Scopes(tree))
        if "threadIdx.y" not in text_of(tree.body):
            edits, sites = _flat(use, find_thread_rows(use)), []
        elif gained(use, tree.body, "threadIdx.x", "threadIdx.y") <= 0:
            return
        else:
            edits, sites = _interchanged(tree), find_launches(tree, workload_file)
        if sites is None:
            return
        files = relaunched(tree, workload_file, sites, edits, _turned)
    except LookupError:
        return
    yield Candidate(kernel.language, *files, "neighbouring threads for neighbouring elements", "rewrite:swap_axes")
