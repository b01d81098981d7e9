"""Write down how many numbers a kernel's threads have where only its launch says it, for rewrites that need to know.

Kernels of tutorials often test no limits: their grids have `width / 16` blocks of 16 threads, where 16 divides sizes.
Blocks of another size then need a test. As a kernel without one has no threads past the last element, the size that its
grid is computed from is taken for the number of its threads, and the test keeps them all.

The other way round, a test of a block's place that all launches pass, as that of a batch's number against as many
blocks, says nothing, and goes.
"""

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import Rewrite, followed_by
from kernel_lsp.refine.rewrites.accesses import halo_tile, several_outputs, transpose_tile
from kernel_lsp.refine.rewrites.accesses.neighbours import ThreadNumber, head_of, thread_numbers
from kernel_lsp.refine.rewrites.products import tensor_product, tile_product
from kernel_lsp.refine.rewrites.reading.affine import symbol, thread_index
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    bare,
    condition_parts,
    indent_at,
    names,
    only_returns,
    whole_line,
)
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import compared
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_FOLLOWING: tuple[Rewrite, ...] = (
    tensor_product.rewrite,
    tile_product.rewrite,
    transpose_tile.rewrite,
    several_outputs.rewrite,
    halo_tile.rewrite,
)


def _numbers(use: MemoryUse) -> list[ThreadNumber]:
    """Return the numbers of a kernel's threads, of which no condition around its work tests one.

    Raises:
        NotApplicableError: one does, or a number has another form.
    """
    tree, found = use.scopes.tree, thread_numbers(use)
    tested = {
        name for n in tree.body.named_children if n.type == "if_statement" for name in names(field(n, "condition"))
    }
    if any(one.plus or one.name in tested for one in found.values()):
        raise NotApplicableError("numbers that are tested")
    axes = {text_of(n)[-1] for n in walk(tree.body) if n.type == "field_expression" and "threadIdx" in text_of(n)}
    if not found or axes != set(found):
        raise NotApplicableError("numbers of another form")
    return [found[axis] for axis in "yx" if axis in found]


def _limit(use: MemoryUse, sites: list[LaunchSite], axis: str) -> str:
    """Return the parameter that all launches compute the blocks along an axis from, or the constant that they cover.

    Raises:
        NotApplicableError: there is none.
    """
    at = "xyz".index(axis)
    for name in (p.name for p in use.scopes.tree.kernel.parameters if "*" not in p.type):
        if all(name in site.arguments and _covers(site, at, site.arguments[name]) for site in sites):
            return name
    launched = {_threads(site, at) for site in sites}
    for node in walk(use.scopes.tree.body):
        constant = node.type == "identifier" and use.scopes.of(node) is None
        if constant and (value := use.indices.of(node).value) is not None and launched == {value}:
            return text_of(node)
    raise NotApplicableError("a grid that no argument gives the size of")


def _threads(site: LaunchSite, at: int) -> int | None:
    """Return the number of a launch's threads along an axis; None where it is not the same for all inputs."""
    total = 1
    for sizes in (site.sizes(site.grid), site.sizes(site.block)):
        if at >= len(sizes):
            return None
        count = site.number(sizes[at])
        if count is None:
            return None
        total *= count
    return total


def _covers(site: LaunchSite, at: int, amount: str) -> bool:
    """Return True if the grid of a launch has a block for each block's worth of an amount, rounded either way."""
    grid, block = site.sizes(site.grid), site.sizes(site.block)
    if at >= len(grid) or at >= len(block) or amount.isdigit():
        return False
    of_block = site.bound.get(block[at].id, block[at])
    written, amount = _bare(text_of(site.bound.get(grid[at].id, grid[at]))), _bare(amount)
    spelled = (block[at], of_block, site.block) if len(block) == 1 else (block[at], of_block)
    for size in {_bare(text_of(one)) for one in spelled}:
        sums = [f"{amount}+{size}-1", f"{size}-1+{amount}", *([f"{amount}+{int(size) - 1}"] if size.isdigit() else [])]
        quotients = [f"({a})/{size}" for a in (*sums, amount)] + [f"{amount}/{size}", f"-(-{amount}/{size})"]
        if written in quotients or re.fullmatch(rf"[\w.]*(cdiv|ceil_?div|div_?up)\({amount},{size}\)", written, re.I):
            return True
    return False


def _bare(text: str) -> str:
    """Return an expression without blanks, the parentheses around it, and what sets Python's division apart."""
    text = re.sub(r"\s", "", text).replace("//", "/")
    return text[1:-1] if re.fullmatch(r"\([^()]*\)", text) else text


def _sure_tests(use: MemoryUse, sites: list[LaunchSite]) -> list[Edit]:
    """Return the edits that take tests of a block's place away which all launches pass."""
    tree, edits = use.scopes.tree, list[Edit]()
    for node in tree.body.named_children:
        if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
            continue
        leaves, condition = only_returns(field(node, "consequence")), bare(field(field(node, "condition"), "value"))
        parts = list(condition_parts(field(node, "condition"), "||" if leaves else "&&"))
        kept = [part for part in parts if not _is_sure(use, sites, compared(part, ">=" if leaves else "<"))]
        if kept and len(kept) < len(parts):
            edits.append(Edit(span_of(condition), (" || " if leaves else " && ").join(text_of(part) for part in kept)))
        elif leaves and not kept:
            edits.append(Edit(whole_line(tree.file.text, span_of(node)), ""))
    return edits


def _is_sure(use: MemoryUse, sites: list[LaunchSite], tested: tuple[Node, Node] | None) -> bool:
    """Return True if a block's place is tested against an argument that every launch has as its grid's size."""
    if tested is None:
        return False
    value, limit = (use.indices.of(node) for node in tested)
    names_ = [p.name for p in use.scopes.tree.kernel.parameters if limit == symbol(p.name)]
    for at, axis in enumerate("xyz"):
        alone = all(len(s.sizes(s.block)) <= at or s.number(s.sizes(s.block)[at]) == 1 for s in sites)
        if names_ and (value == symbol(f"blockIdx.{axis}") or (alone and value == thread_index(axis))):
            grids = [(s.arguments.get(names_[0]), [text_of(n) for n in s.sizes(s.grid)]) for s in sites]
            return all(given in grid[at : at + 1] for given, grid in grids)
    return False


def _limited(tree: KernelTree, sites: list[LaunchSite]) -> KernelTree:
    """Return the kernel with a test of its threads' numbers.

    Raises:
        LookupError: it has one, or its launches do not say against what.
    """
    numbers = _numbers(use := MemoryUse(Scopes(tree)))
    if not any(a.written for a in use.accesses(tree.body)):
        raise NotApplicableError("nothing is written")
    _, first = head_of(tree, [one.statement for one in numbers])
    test = " || ".join(f"{one.name} >= {_limit(use, sites, one.axis)}" for one in numbers)
    line = f"if ({test}) return;\n{indent_at(tree.file.text, first.start_byte)}"
    return tree.edited(Edit(Span(first.start_byte, first.start_byte), line))


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield what other rewrites make of the kernel with a test of its threads' numbers, or without a needless one."""
    try:
        tree = KernelTree(kernel_file, kernel)
        sites = find_launches(tree, workload_file)
        if tree.threads_meet or sites is None:
            return
        sure = _sure_tests(MemoryUse(Scopes(tree)), sites)
        file = (tree.edited(*sure) if sure else _limited(tree, sites)).file
    except LookupError:
        return
    tested = Candidate(kernel.language, file, workload_file, "limits of the launch", "rewrite:launched_limits")
    for following in _FOLLOWING:
        yield from followed_by(tested, kernel, device, following)
