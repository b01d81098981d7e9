"""Use fewer blocks: a grid-stride loop, and a grid of some blocks for each multiprocessor."""

from collections.abc import Iterator

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.accesses.element_loop import as_grid_stride
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.loops import find_loops, holds
from kernel_lsp.refine.rewrites.writing.launches import change_grid
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.trees import field, walk

_BLOCKS_EACH = (4, 8, 16)


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel as a grid-stride loop, with its grid capped in the launch.

    Args:
        kernel_file: file of the kernel.
        workload_file: file whose `launch` launches it, if any.
        kernel: the kernel.
        device: the one that the candidates are for.
    """
    try:
        tree = KernelTree(kernel_file, kernel)
        looped = as_grid_stride(tree)
        if looped is None and any(loop.over_grid for loop in find_loops(tree)):
            looped = tree
        if looped is None or _counts_blocks(looped):
            return
        for each in _BLOCKS_EACH:
            files = change_grid(
                looped,
                workload_file,
                [lambda x, each=each: f"min({x}, {each} * {device.multiprocessors})"],
                [lambda x, each=each: f"min(static_cast<long long>({x}), {each} * {device.multiprocessors}LL)"],
            )
            capped = any(f is not None and "min(min(" in f.text for f in files or ())
            if files and not capped:
                label = f"grid-stride loop, {each} blocks for each multiprocessor"
                yield Candidate(kernel.language, *files, label, "rewrite:grid_stride")
    except LookupError:
        return


def _counts_blocks(tree: KernelTree) -> bool:
    """Return True if each block has a place of its own outside the loop, so that somebody counts on their number."""
    inside = [loop.body for loop in find_loops(tree) if loop.over_grid]
    places = [node for node in walk(tree.body) if node.type == "subscript_expression" and not holds(inside, node)]
    return any("blockIdx.x" in tree.canonical(field(place, "indices")) for place in places)
