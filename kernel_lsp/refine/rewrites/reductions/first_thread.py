"""Launch one thread, or one a block, where all others leave a kernel at once: `if (threadIdx.x != 0) return;`.

No gain by itself, but the kernel is then read as one of a single thread (`one_thread`, `grid_scan`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, condition_parts, only_returns, whole_line
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import thread_macros
from kernel_lsp.refine.rewrites.writing.insertions import unwrapped
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.leftovers import with_remark
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_THREAD, _BLOCK = symbol("threadIdx.x"), symbol("blockIdx.x")


@dataclass(frozen=True)
class _Guard:
    """The test that all threads but the first one of a block, or of the grid, fail.

    Attributes:
        node: the statement.
        leaves: it returns; else all that the kernel does stands in it.
        whole_grid: of the grid.
        kept: what else it tests.
    """

    node: Node
    leaves: bool
    whole_grid: bool
    kept: tuple[Node, ...]


def unguarded(kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel) -> Iterator[Candidate]:
    """Yield a kernel of which one thread works alone, without the test and the other threads."""
    try:
        tree = KernelTree(kernel_file, kernel)
        sites = find_launches(tree, workload_file)
        if sites is None or not all(site.along_x_alone for site in sites) or kernel.launch_bounds:
            return
        guard = _find(MemoryUse(Scopes(tree)))
        edits = [*_without(tree, guard), *_idle(tree, guard)]
        words = set(re.findall(r"\w+", text_of(tree.edited(*edits).body)))
        if words & {"threadIdx", "blockDim", *(["gridDim"] if guard.whole_grid else []), *thread_macros(tree.root)}:
            return

        def alone(site: LaunchSite) -> list[Edit]:
            return [site.with_block("1"), *([site.with_grid("1")] if guard.whole_grid else [])]

        files = relaunched(tree, workload_file, sites, edits, alone)
    except LookupError:
        return
    yield Candidate(kernel.language, *files, "without idle threads", "rewrite:first_thread")


def _find(use: MemoryUse) -> _Guard:
    statements = [n for n in use.scopes.tree.body.named_children if n.type != "comment"]
    at = next((i for i, n in enumerate(statements) if n.type == "if_statement"), len(statements))
    if at == len(statements) or any(n.type != "declaration" or use.accesses(n) for n in statements[:at]):
        raise NotApplicableError("no test of all that the kernel does")
    node = statements[at]
    leaves = only_returns(field(node, "consequence"))
    if node.child_by_field_name("alternative") is not None or (not leaves and node != statements[-1]):
        raise NotApplicableError("no test of all that the kernel does")
    parts = list(condition_parts(field(node, "condition"), "||" if leaves else "&&"))
    numbers = [_first(use, part, ("!=", ">") if leaves else ("==",)) for part in parts]
    known = [one for one in numbers if one is not None]
    whole_grid = any(one != _THREAD for one in known)
    if not known or (known == [_BLOCK]):
        raise NotApplicableError("no test for the first thread")
    kept = tuple(part for part, one in zip(parts, numbers, strict=True) if one is None)
    return _Guard(node, leaves, whole_grid, kept)


def _first(use: MemoryUse, part: Node, operators: tuple[str, ...]) -> Polynomial | None:
    """Return the number of a thread, of a block, or of a thread in the grid, that a condition compares with 0."""
    if part.type != "binary_expression" or text_of(field(part, "operator")) not in operators:
        return None
    if text_of(bare(field(part, "right"))).rstrip("uU") != "0":
        return None
    number = use.indices.of(field(part, "left"))
    width = (number - _THREAD).factor("blockIdx.x")
    in_grid = width is not None and len(width.terms) == 1 and number == width * _BLOCK + _THREAD
    return number if number in (_THREAD, _BLOCK) or in_grid else None


def _without(tree: KernelTree, guard: _Guard) -> list[Edit]:
    """Return the edits that leave the test for the first thread out."""
    node, inside = guard.node, field(guard.node, "consequence")
    if guard.kept:
        joined = (" || " if guard.leaves else " && ").join(map(text_of, guard.kept))
        return [Edit(span_of(field(node, "condition")), f"({joined})")]
    if guard.leaves:
        return [Edit(whole_line(tree.file.text, Span(node.start_byte, with_remark(node))), "")]
    return [Edit(span_of(node), unwrapped(tree, node, inside))]


def _idle(tree: KernelTree, guard: _Guard) -> list[Edit]:
    """Return the edits that remove numbers of threads which only the test used."""
    scopes, gone = Scopes(tree), [span_of(field(guard.node, "condition"))]
    edits: list[Edit] = []
    for one in reversed(scopes.variables):
        node = one.declaration
        if node is None or node.parent != tree.body or one.value is None or "Idx" not in text_of(one.value):
            continue
        uses = scopes.uses(one, tree.body)
        alone = len(node.children_by_field_name("declarator")) == 1
        calls = any(n.type == "call_expression" for n in walk(one.value))
        if alone and not calls and all(any(span.holds(span_of(n)) for span in gone) for n in uses):
            gone.append(span_of(node))
            edits.append(Edit(whole_line(tree.file.text, Span(node.start_byte, with_remark(node))), ""))
    return edits
