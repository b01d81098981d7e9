"""Let a tile that a block transposes row by row go through shared memory: loads and stores touch neighbours then.

The block of the naive kernel has a row of threads for some rows of a square tile, and each thread goes down its column:
`for (j = 0; j < TILE; j += ROWS) out[x * height + y + j] = in[(y + j) * width + x]`. Its loads touch neighbours, its
stores do not. In the new kernel the same loop fills a tile in shared memory, and one like it stores what stands at the
transposed place there (Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA", NVIDIA 2009).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, body_unit, indent_at, statements_of
from kernel_lsp.refine.rewrites.reading.loops import loop_step
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.launch_sites import find_launches
from kernel_lsp.refine.rewrites.writing.leftovers import without_unused
from kernel_lsp.refine.rewrites.writing.spelling import closed, spelled
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import field, span_of, text_of

_MOST = 32  # columns of a tile
_TX, _TY = symbol("threadIdx.x"), symbol("threadIdx.y")


@dataclass(frozen=True)
class _Copy:
    """A loop that copies a tile to its transposed place.

    Attributes:
        loop: the statement.
        head: `for (...)` as text.
        counter: what it counts, by its name.
        store: the element that is written.
        value: what is written.
        element: the type of an element.
        extent: how the loop writes the number of rows and columns of a tile.
        size: the same number.
        rows: how many rows a block has threads for.
        place: index of the element that a thread stores in the new kernel.
    """

    loop: Node
    head: str
    counter: str
    store: Node
    value: Node
    element: str
    extent: str
    size: int
    rows: int
    place: str


def _find(use: MemoryUse) -> _Copy:
    """Return the only work of a kernel as such a copy.

    Raises:
        NotApplicableError: it is none.
    """
    statements = statements_of(use.scopes.tree.body)
    loop = statements[-1] if statements else use.scopes.tree.body
    if loop.type != "for_statement" or any(n.type != "declaration" for n in statements[:-1]):
        raise NotApplicableError("other work than a loop")
    body = field(loop, "body")
    inner = statements_of(body)
    copy = inner[0].named_children[0] if len(inner) == 1 and inner[0].type == "expression_statement" else loop
    if copy.type != "assignment_expression" or text_of(field(copy, "operator")) != "=":
        raise NotApplicableError("no copy")
    counter, size, rows = _counted(use, loop)
    stores, loads = ([a for a in use.accesses(loop) if a.written is kind] for kind in (True, False))
    if len(stores) != 1 or len(loads) != 1 or loads[0].node != field(copy, "right"):
        raise NotApplicableError("more than one element")
    to, of = stores[0].offset, loads[0].offset
    if to is None or of is None or stores[0].pointer is None or loads[0].pointer in (None, stores[0].pointer):
        raise NotApplicableError("an address that is not known")
    head = use.scopes.tree.file.text.encode()[loop.start_byte : body.start_byte].decode().strip()
    extent = field(field(loop, "condition"), "right")
    place = _transposed(use, to, of, counter, extent)
    element = stores[0].pointer.type.rstrip("*")
    return _Copy(loop, head, counter.name, stores[0].node, loads[0].node, element, text_of(extent), size, rows, place)


def _counted(use: MemoryUse, loop: Node) -> tuple[CudaVariable, int, int]:
    """Return the counter of a loop from 0, how far it counts, and in which steps.

    Raises:
        NotApplicableError: it counts in another way.
    """
    condition, update = field(loop, "condition"), field(loop, "update")
    declarators = field(loop, "initializer").children_by_field_name("declarator")
    if len(declarators) != 1 or condition.type != "binary_expression" or text_of(field(condition, "operator")) != "<":
        raise NotApplicableError("a loop of another form")
    counter, start = use.scopes.of(field(condition, "left")), declarators[0].child_by_field_name("value")
    by = loop_step(update, text_of(field(condition, "left")))
    step = use.indices.of(by).value if isinstance(by, Node) else None
    size = use.indices.of(field(condition, "right")).value
    if counter is None or start is None or use.indices.of(start).value != 0 or size is None or step is None:
        raise NotApplicableError("a loop of another form")
    if len(counter.changes) != 1 or not 0 < step <= size <= _MOST or size % step:
        raise NotApplicableError("a tile of another size")
    return counter, size, step


def _transposed(use: MemoryUse, to: Polynomial, of: Polynomial, counter: CudaVariable, extent: Node) -> str:
    """Return the index of the element that a thread stores, once threads along x go down the columns.

    Raises:
        NotApplicableError: loads do not touch neighbours along x, or stores along y.
    """
    down, across, count = to.factor("threadIdx.x"), of.factor("threadIdx.y"), symbol(counter.symbol)
    if down is None or across is None or down.value == 1 or across.value == 1:
        raise NotApplicableError("stores of neighbours")
    store, load = to - down * _TX - _TY - count, of - _TX - across * (_TY + count)
    moving = {*_TX.names(), *_TY.names(), *count.names()}
    if any(part.names() & moving for part in (store, load, down, across)):
        raise NotApplicableError("no tile")
    size, tile = use.indices.of(extent), text_of(extent)
    rest = store - down * size * symbol("blockIdx.x") - size * symbol("blockIdx.y")
    height = next((v.name for v in use.scopes.variables if v.constant and use.indices.of(v.constant) == down), "")
    row = f"(blockIdx.x * {tile} + threadIdx.y + {counter.name}) * {height or closed(spelled(down))}"
    return " + ".join([row, f"blockIdx.y * {tile} + threadIdx.x", *([spelled(rest)] if rest.terms else [])])


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with its tile in shared memory."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.threads_meet:
            return
        found = _find(MemoryUse(Scopes(tree)))
        sites = find_launches(tree, workload_file)
        blocks = {(found.size, found.rows), (found.size, found.rows, 1)}
        if sites is None or any(site.shape() not in blocks for site in sites):
            return
        done = _through_tile(tree, found)
    except LookupError:
        return
    label = f"tiles of {found.size} x {found.size} through shared memory"
    yield Candidate(kernel.language, done.file, workload_file, label, "rewrite:transpose_loop")


def _through_tile(tree: KernelTree, found: _Copy) -> KernelTree:
    """Return the kernel with one loop that fills a tile, and one that stores it."""
    tile, pad = tree.fresh("tile"), indent_at(tree.file.text, found.loop.start_byte)
    array, unit = text_of(field(found.store, "argument")), body_unit(pad)
    lines = [
        "// A tile goes through shared memory: loads and stores both touch neighbours.",
        f"__shared__ {found.element} {tile}[{found.extent}][{found.extent} + 1];  // one more, against bank conflicts",
        found.head,
        f"{unit}{tile}[threadIdx.y + {found.counter}][threadIdx.x] = {text_of(found.value)};",
        "__syncthreads();",
        found.head,
        f"{unit}{array}[{found.place}] = {tile}[threadIdx.x][threadIdx.y + {found.counter}];",
    ]
    index = field(found.store, "indices")
    suspects = {text_of(n) for n in index.named_children[0].named_children or index.named_children}
    done = tree.edited(Edit(span_of(found.loop), f"\n{pad}".join(lines)))
    return without_unused(done, suspects)
