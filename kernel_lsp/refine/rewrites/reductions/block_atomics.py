"""Add up the values of a block before one thread adds them to memory: atomics on one address go one after the other.

Where each thread adds to an element that its whole block shares, threads gather in a variable of their own, the block
combines these by shuffles, and its first thread adds the sum. A loop over the grid goes first where there is none, so
that a few blocks for each multiprocessor are left to add.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses import grid_stride, one_axis, vectorize
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, indent_at
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reductions.atomic_adds import AtomicAdd, atomic_adds, is_of_block
from kernel_lsp.refine.rewrites.reductions.team import Team, block_team
from kernel_lsp.refine.rewrites.writing.insertions import around_body, defined_before
from kernel_lsp.refine.rewrites.writing.launch_sites import find_launches
from kernel_lsp.refine.rewrites.writing.spelling import zero_of
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import field, span_of, text_of, walk

_MOST = 4  # elements that a kernel adds to, for each of which its blocks meet


def _combined(tree: KernelTree) -> KernelTree:
    """Return the kernel with one addition for each block and element.

    Raises:
        NotApplicableError: its additions do not go to a few elements, or threads leave before its end.
    """
    if tree.collective(tree.body):
        raise NotApplicableError("threads meet already")
    use = MemoryUse(Scopes(tree))
    found = atomic_adds(use)
    groups = {one.address: [other for other in found if other.address == one.address] for one in found}
    if len(groups) > _MOST or not all(is_of_block(use.scopes, n) for one in found for n in one.indices):
        raise NotApplicableError("elements of each thread's own")
    team, kind = block_team(tree), found[0].pointer.type.rstrip("*")
    if _has_own_sum(tree, found, kind):
        statement = found[0].call.parent
        assert statement is not None, "it is a statement"
        behind = _added(tree, team, found[0], text_of(found[0].value), "block_sum")
        pad = indent_at(tree.file.text, statement.start_byte)
        return tree.edited(Edit(span_of(statement), f"\n{pad}".join(behind)), defined_before(tree, team.text))
    edits, ahead, behind = list[Edit](), list[str](), list[str]()
    for at, group in enumerate(groups.values()):
        number, kind = str(at + 1) if len(groups) > 1 else "", group[0].pointer.type.rstrip("*")
        own = tree.fresh(f"own_sum{number}")
        ahead.append(f"{kind} {own} = {zero_of(kind)};" + ("" if at else "  // one thread adds for its block"))
        behind += _added(tree, team, group[0], own, f"block_sum{number}")
        edits += [Edit(span_of(one.call), f"{own} += {text_of(one.value)}") for one in group]
    return tree.edited(*edits, *around_body(tree, ahead, behind), defined_before(tree, team.text))


def _added(tree: KernelTree, team: Team, to: AtomicAdd, own: str, total: str) -> list[str]:
    """Return the lines that add what a block's threads gathered."""
    kind, total = to.pointer.type.rstrip("*"), tree.fresh(total)
    return [
        f"const {kind} {total} = {team.helper}({own}, []({kind} a, {kind} b) {{ return a + b; }});",
        f"if ({team.alone}) atomicAdd({to.address}, {total});",
    ]


def _has_own_sum(tree: KernelTree, found: list[AtomicAdd], kind: str) -> bool:
    """Return True if a thread ends with adding a variable that has its sum."""
    value, statement = found[0].value, found[0].call.parent
    kept = tree.declarations.get(text_of(value)) if value.type == "identifier" else None
    last = len(found) == 1 and statement == tree.body.named_children[-1]
    straight = not any(n.type == "return_statement" for n in walk(tree.body))
    return last and straight and kept is not None and text_of(field(kept[0], "type")) == kind


def _alone(kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device) -> Iterator[Candidate]:
    try:
        tree = KernelTree(kernel_file, kernel)
        done = _combined(tree)
        sites = find_launches(tree, workload_file)
        if sites is None or any((site.threads() or 1) % 32 for site in sites):
            return
    except LookupError:
        return
    yield Candidate(kernel.language, done.file, workload_file, "one atomic a block", "rewrite:block_atomics")


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with one addition a block: with a loop over the grid, first by 128-bit loads, then as it is.

    Where a launch has two axes of threads that it does not need, it is given one first.
    """
    for flat in one_axis.flattened(kernel_file, workload_file, kernel):
        yield from followed_by(flat, kernel, device, rewrite)
    alone = list(_alone(kernel_file, workload_file, kernel, device))
    if not alone:
        return
    for candidate in islice(grid_stride.rewrite(kernel_file, workload_file, kernel, device), 2):
        for one in followed_by(candidate, kernel, device, _alone):
            found = replace(one, origin="rewrite:block_atomics")
            yield from followed_by(found, kernel, device, vectorize.rewrite, 1)
            yield found
    yield from alone
