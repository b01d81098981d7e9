"""Write down how many numbers a kernel's threads have where only its launch says it, for rewrites that need to know.

Kernels of tutorials often test no limits: their grids have `width / 16` blocks of 16 threads, where 16 divides sizes.
Blocks of another size then need a test. As a kernel without one has no threads past the last element, the size that its
grid is computed from is taken for the number of its threads, and the test keeps them all.
"""

import re
from collections.abc import Iterator

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import Rewrite, followed_by
from kernel_lsp.refine.rewrites.accesses import halo_tile, several_outputs, transpose_tile
from kernel_lsp.refine.rewrites.accesses.neighbours import ThreadNumber, head_of, thread_numbers
from kernel_lsp.refine.rewrites.products import tile_product
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, indent_at, names
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, known_size
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, text_of, walk

_FOLLOWING: tuple[Rewrite, ...] = (
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
    launched = {_threads(use, site, at) for site in sites}
    for node in walk(use.scopes.tree.body):
        constant = node.type == "identifier" and use.scopes.of(node) is None
        if constant and (value := use.indices.of(node).value) is not None and launched == {value}:
            return text_of(node)
    raise NotApplicableError("a grid that no argument gives the size of")


def _threads(use: MemoryUse, site: LaunchSite, at: int) -> int | None:
    """Return the number of a launch's threads along an axis; None where it is not the same for all inputs."""
    total = 1
    for sizes in (site.sizes(site.grid), site.sizes(site.block)):
        if at >= len(sizes):
            return None
        count = known_size(use, site, sizes[at])
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
    for size in {_bare(text_of(one)) for one in (block[at], of_block)}:
        sums = [f"{amount}+{size}-1", f"{size}-1+{amount}", *([f"{amount}+{int(size) - 1}"] if size.isdigit() else [])]
        quotients = [f"({a})/{size}" for a in (*sums, amount)] + [f"{amount}/{size}", f"-(-{amount}/{size})"]
        if written in quotients or re.fullmatch(rf"[\w.]*(cdiv|ceil_?div|div_?up)\({amount},{size}\)", written, re.I):
            return True
    return False


def _bare(text: str) -> str:
    """Return an expression without blanks, the parentheses around it, and what sets Python's division apart."""
    text = re.sub(r"\s", "", text).replace("//", "/")
    return text[1:-1] if re.fullmatch(r"\([^()]*\)", text) else text


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield what other rewrites make of the kernel with a test of its threads' numbers."""
    try:
        tree = KernelTree(kernel_file, kernel)
        sites = find_launches(tree, workload_file)
        if tree.threads_meet or sites is None:
            return
        numbers = _numbers(use := MemoryUse(Scopes(tree)))
        if not any(a.written for a in use.accesses(tree.body)):
            return
        _, first = head_of(tree, [one.statement for one in numbers])
        test = " || ".join(f"{one.name} >= {_limit(use, sites, one.axis)}" for one in numbers)
    except LookupError:
        return
    line = f"if ({test}) return;\n{indent_at(kernel_file.text, first.start_byte)}"
    file = tree.edited(Edit(Span(first.start_byte, first.start_byte), line)).file
    tested = Candidate(kernel.language, file, workload_file, "limits of the launch", "rewrite:launched_limits")
    for following in _FOLLOWING:
        yield from followed_by(tested, kernel, device, following)
