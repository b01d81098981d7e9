"""Count in shared memory before a block adds to global memory: a histogram's threads meet in few elements.

Each block has its own copy of the first elements of an array that its threads add to at places that the data say. At
its end it adds those that are not zero. Additions beyond the copy go to global memory as before, so that the kernel is
right however long the array is. Worth it only where a block adds often: it walks over the grid, or over its data.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tree_sitter import Node

from kernel_lsp.device.architectures import STATIC_SHARED_BYTES
from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses import grid_stride, one_axis
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, indent_at
from kernel_lsp.refine.rewrites.reading.loops import find_loops
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reductions.atomic_adds import AtomicAdd, atomic_adds
from kernel_lsp.refine.rewrites.writing.insertions import around_body
from kernel_lsp.refine.rewrites.writing.launch_sites import find_launches
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import field, span_of, text_of, walk

_BINS = (1024, 256, 4096)
_WIDE = ("double", "unsigned long long", "unsigned long long int", "long long", "uint64_t", "int64_t")


def _counted(tree: KernelTree, count: int) -> KernelTree:
    """Return the kernel with `count` elements in shared memory.

    Raises:
        NotApplicableError: there are no additions at places that the data say, or threads meet already.
    """
    if tree.threads_meet:
        raise NotApplicableError("threads meet already")
    use = MemoryUse(Scopes(tree))
    found = atomic_adds(use)
    if not all(one.index is not None and _is_of_data(tree, one.index) for one in found):
        raise NotApplicableError("places that do not depend on the data")
    arrays = {one.pointer.name: one.pointer.type.rstrip("*") for one in found}
    wide = (kind in tree.type_parameters or tree.plain_type(kind) in _WIDE for kind in arrays.values())
    if count * sum(8 if one else 4 for one in wide) > STATIC_SHARED_BYTES:
        raise NotApplicableError("too much shared memory")
    bins, at = tree.fresh("BINS"), tree.fresh("bin")
    mine = {array: tree.fresh(f"block_{array}") for array in arrays}
    every = f"for (int {at} = threadIdx.x; {at} < {bins}; {at} += blockDim.x)"
    why = "  // counted here first: threads meet in few elements"
    ahead = [
        f"constexpr int {bins} = {count};{why}",
        *(f"__shared__ {kind} {mine[array]}[{bins}];" for array, kind in arrays.items()),
        f"{every} {' = '.join(f'{one}[{at}]' for one in mine.values())} = 0;",
        "__syncthreads();",
    ]
    behind = [
        "__syncthreads();",
        f"{every} {{",
        *(f"    if ({mine[one]}[{at}] != 0) atomicAdd(&{one}[{at}], {mine[one]}[{at}]);" for one in arrays),
        "}",
    ]
    edits = [_addition(tree, one, bins, mine[one.pointer.name]) for one in found]
    return tree.edited(*edits, *around_body(tree, ahead, behind))


def _is_of_data(tree: KernelTree, index: Node) -> bool:
    """Return True for an index that is made, or chosen, from what is read from memory, and has no effect."""
    if any(n.type in ("assignment_expression", "update_expression") for n in walk(index)):
        return False
    todo, reached, chosen = [index], set[str](), False
    while todo:
        for node in walk(todo.pop()):
            if node.type == "subscript_expression":
                return True
            if node.type == "identifier" and (name := text_of(node)) not in reached:
                reached.add(name)
                values = _given(tree, name)
                chosen |= len(values) > 1
                todo += values
    return chosen and "threadIdx" not in reached


def _given(tree: KernelTree, name: str) -> list[Node]:
    """Return the values that a local is given."""
    first = tree.declarations.get(name, (None, None))[1]
    changes = (n for n in walk(tree.body) if n.type == "assignment_expression" and text_of(field(n, "left")) == name)
    return [*([first] if first is not None else []), *(field(n, "right") for n in changes)]


def _addition(tree: KernelTree, one: AtomicAdd, bins: str, mine: str) -> Edit:
    assert one.index is not None, "it was looked at"
    array, value = one.pointer.name, text_of(one.value)
    statement = one.call.parent
    assert statement is not None, "it is a statement"
    pad = indent_at(tree.file.text, statement.start_byte)
    place, lines = text_of(one.index), list[str]()
    if bare(one.index).type != "identifier":
        place = tree.fresh("place")
        lines.append(f"const auto {place} = {text_of(one.index)};")
    lines.append(f"atomicAdd({place} >= 0 && {place} < {bins} ? &{mine}[{place}] : &{array}[{place}], {value});")
    if len(lines) == 1 or (statement.parent is not None and statement.parent.type == "compound_statement"):
        return Edit(span_of(statement), f"\n{pad}".join(lines))
    inside = "".join(f"{pad}    {line}\n" for line in lines)
    return Edit(span_of(statement), f"{{\n{inside}{pad}}}")


def _alone(kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device) -> Iterator[Candidate]:
    try:
        tree = KernelTree(kernel_file, kernel)
        loops = [loop for loop in find_loops(tree) if not loop.serial]
        sites = find_launches(tree, workload_file)
        if sites is None or not all(site.flat for site in sites):
            return
        if not any("atomicAdd" in text_of(loop.body) for loop in loops):
            return
        for count in _BINS:
            files = _counted(tree, count).file, workload_file
            yield Candidate(kernel.language, *files, f"{count} sums in shared memory", "rewrite:shared_bins")
    except LookupError:
        return


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 1024, 256 and 4096 sums in shared memory; with a loop over the grid where it has none.

    Where a launch has two axes of threads that it does not need, it is given one first.
    """
    for flat in one_axis.flattened(kernel_file, workload_file, kernel):
        yield from followed_by(flat, kernel, device, rewrite)
    yield from _alone(kernel_file, workload_file, kernel, device)
    for candidate in islice(grid_stride.rewrite(kernel_file, workload_file, kernel, device), 2):
        for one in followed_by(candidate, kernel, device, _alone):
            yield replace(one, origin="rewrite:shared_bins")
