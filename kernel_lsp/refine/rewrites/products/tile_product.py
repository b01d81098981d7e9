"""Tile a matrix product in which each thread sums up one element: tiles of both operands go through shared memory.

A thread of the naive kernel reads a row and a column from global memory for each element. In the new one a block of
16 x 16 threads loads a tile of either operand, neighbouring threads neighbouring elements whichever way the operand
lies, pads with zeros beyond the borders, and adds up 16 products from shared memory before the next tile. Neighbouring
threads get neighbouring elements of the result, even where they did not before. Then `register_tile` applies.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.products import register_tile
from kernel_lsp.refine.rewrites.products.naive_product import NaiveProduct, Operand, find_product
from kernel_lsp.refine.rewrites.reading.affine import Polynomial
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, indent_at, only_returns, whole_line
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import spelled, zero_of
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import span_of, text_of

_TILE = 16


@dataclass(frozen=True)
class _Names:
    """Names that are free in the file."""

    tile: str
    first: str
    left: str
    right: str
    total: str
    loaded_row: str
    loaded_column: str


def _load(product: NaiveProduct, names: _Names, one: Operand, left: bool) -> tuple[list[str], list[str]]:
    """Return what loads an operand's tile, `tile[row][k]` or `tile[k][column]`: lines ahead of the loop, and in it."""
    outer = product.row if left else product.column
    at_outer, at_k = ("threadIdx.x", "threadIdx.y") if one.outer_is_near else ("threadIdx.y", "threadIdx.x")
    ahead: list[str] = []
    index = outer.name
    if at_outer != ("threadIdx.y" if left else "threadIdx.x"):
        index = names.loaded_row if left else names.loaded_column
        ahead = [f"const int {index} = blockIdx.{'y' if left else 'x'} * {names.tile} + {at_outer};"]
    depth = f"{names.first} + {at_k}"
    name, place = (names.left, (at_outer, at_k)) if left else (names.right, (at_k, at_outer))
    kind = one.pointer.type.rstrip("*")
    inside = f"{index} < {text_of(outer.limit)} && {depth} < {text_of(product.loop.limit)}"
    value = f"{element_of(one, index, depth)} : {zero_of(kind)};"
    return ahead, [f"{name}[{place[0]}][{place[1]}] =", f"    {inside} ? {value}"]


def element_of(one: Operand, outer: str, depth: str) -> str:
    """Return the element of an operand at a row or column, and a step of the sum, as text."""
    wide = "(size_t)" if one.wide and (one.outer_factor.value != 1 or one.depth_factor.value != 1) else ""
    parts = [_multiple(outer, one.outer_factor, wide), _multiple(depth, one.depth_factor, wide)]
    parts = parts[::-1] if one.outer_is_near else parts
    parts += [spelled(one.rest)] if one.rest.terms else []
    return f"{one.pointer.name}[{' + '.join(parts)}]"


def _shared(one: Operand, name: str, tile: str, *, turned: bool) -> str:
    """Return the declaration of a tile; one that is written by columns has a spare one, against bank conflicts."""
    return f"__shared__ {one.pointer.type.rstrip('*')} {name}[{tile}][{tile}{' + 1' if turned else ''}];"


def _placed(lines: list[str], pad: str) -> Iterator[str]:
    """Yield indented lines; the first one has its indent."""
    for at, line in enumerate(lines):
        yield line if at == 0 or line.startswith("#") else pad + line


def _multiple(text: str, by: Polynomial, wide: str = "") -> str:
    """Return a product as text."""
    if by.value == 1:
        return text
    factor = spelled(by)
    return f"{wide}{f'({text})' if ' + ' in text else text} * {f'({factor})' if ' + ' in factor else factor}"


def _tiled(product: NaiveProduct, tree: KernelTree) -> list[Edit]:
    """Return the edits of the kernel."""
    loop, text = product.loop, tree.file.text
    left, right = product.left, product.right
    stems = [left.pointer.name, right.pointer.name]
    if left.pointer is right.pointer:  # a matrix times itself
        stems = [f"{stems[0]}_{axis.name}" for axis in (product.row, product.column)]
    names = _Names(
        tree.fresh("TILE"),
        tree.fresh(f"first_{loop.variable.name}"),
        tree.fresh(f"{stems[0]}_tile"),
        tree.fresh(f"{stems[1]}_tile"),
        product.total.name if product.hoisted else tree.fresh("product"),
        tree.fresh(f"loaded_{product.row.name}"),
        tree.fresh(f"loaded_{product.column.name}"),
    )
    kind, counter = product.total.type, loop.variable.name
    loads = [_load(product, names, left, True), _load(product, names, right, False)]
    head = [
        _shared(left, names.left, names.tile, turned=left.outer_is_near),
        _shared(right, names.right, names.tile, turned=not right.outer_is_near),
        *(line for ahead, _ in loads for line in ahead),
        f"{kind} {names.total} = 0;",
        f"for (int {names.first} = 0; {names.first} < {text_of(loop.limit)}; {names.first} += {names.tile}) {{",
        *(f"    {line}" for _, lines in loads for line in lines),
        "    __syncthreads();",
        "#pragma unroll",
        f"    for (int {counter} = 0; {counter} < {names.tile}; ++{counter}) {{",
        *(f"        {line}" for line in _inner(product, names)),
        "    }",
        "    __syncthreads();",
        "}",
    ]
    pad = indent_at(text, product.guard.start_byte)
    start = product.guard.start_byte
    edits = [Edit(Span(start, start), "\n".join(_placed(head, pad)) + f"\n{pad}")]
    edits += [Edit(whole_line(text, span_of(node)), "") for node in product.unused]
    if product.hoisted:
        edits.append(Edit(whole_line(text, span_of(loop.node)), ""))
    else:
        edits.append(Edit(span_of(loop.node), f"{product.total.name} += {names.total};"))
    if product.leaves:
        edits = _indented(product, text, edits)
    for axis, place in ((product.row, "y"), (product.column, "x")):
        edits.append(Edit(span_of(axis.value), f"blockIdx.{place} * {names.tile} + threadIdx.{place}"))
    edits += [Edit(whole_line(text, span_of(node)), "") for node in product.feeding]
    if only_returns(last := tree.body.named_children[-1]):  # which several outputs a thread could not repeat
        edits.append(Edit(whole_line(text, span_of(last)), ""))
    first = min((product.row, product.column), key=lambda axis: axis.value.start_byte).statement
    operands = " and ".join(dict.fromkeys((left.pointer.name, right.pointer.name)))
    why = f"// Tiles of {operands} go through shared memory, where each value is read {_TILE} times."
    pad = indent_at(text, first.start_byte)
    lines = f"{why}\n{pad}constexpr int {names.tile} = {_TILE};\n{pad}"
    return [*edits, Edit(Span(first.start_byte, first.start_byte), lines)]


def _indented(product: NaiveProduct, text: str, edits: list[Edit]) -> list[Edit]:
    """Return the edits with those behind a guard that returns put into the block of one that does not."""
    data, end = text.encode(), product.region[-1].end_byte
    begin = data.rfind(b"\n", 0, product.region[0].start_byte) + 1
    inner = [e for e in edits if e.span.start >= begin]
    moved = [Edit(Span(e.span.start - begin, min(e.span.end, end) - begin), e.text) for e in inner]
    body = apply_edits(data[begin:end].decode(), moved).strip("\n").rstrip()
    shifted = "\n".join(f"    {line}" if line.strip() else line for line in body.split("\n"))
    tests = (f"{axis.name} < {text_of(axis.limit)}" for axis in (product.row, product.column))
    pad = indent_at(text, product.guard.start_byte)
    whole = f"if ({' && '.join(tests)}) {{\n{shifted}\n{pad}}}"
    return [*(e for e in edits if e not in inner), Edit(Span(product.guard.start_byte, end), whole)]


def _inner(product: NaiveProduct, names: _Names) -> list[str]:
    """Return the statements of the loop's body, with the elements of the tiles."""
    loop, counter = product.loop, product.loop.variable.name
    body, origin = loop.body, loop.body.start_byte
    tiles = (
        (product.left, f"{names.left}[threadIdx.y][{counter}]"),
        (product.right, f"{names.right}[{counter}][threadIdx.x]"),
    )
    edits = [
        Edit(Span(node.start_byte - origin, node.end_byte - origin), element)
        for operand, element in tiles
        for node in operand.nodes
    ]
    edits += [
        Edit(Span(n.start_byte - origin, n.end_byte - origin), names.total)
        for n in product.total_uses
        if n.start_byte >= origin and n.end_byte <= body.end_byte
    ]
    text = apply_edits(text_of(body), edits)
    lines = text[1:-1].strip().split("\n") if body.type == "compound_statement" else [text]
    return [line.strip() for line in lines if line.strip()]


def _launched(product: NaiveProduct, site: LaunchSite) -> list[Edit]:
    counts = [site.spelled(axis.amount) for axis in (product.column, product.row)]
    x, y = (site.ceil_div(count, _TILE) if count is not None else None for count in counts)
    if x is None or y is None:
        raise NotApplicableError("the size of the result is not known at a launch")
    return [site.with_grid(x, y), site.with_block(str(_TILE), str(_TILE))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with tiles of 16 x 16, first with several elements of the result a thread."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.collective(tree.body) or kernel.launch_bounds:
            return
        product = find_product(MemoryUse(Scopes(tree)))
        sites = find_launches(tree, workload_file)
        if sites is None:
            return
        files = relaunched(tree, workload_file, sites, _tiled(product, tree), partial(_launched, product))
    except LookupError:
        return
    label = f"tiles of {_TILE} x {_TILE} in shared memory"
    tiled = Candidate(kernel.language, *files, label, "rewrite:tile_product")
    yield from followed_by(tiled, kernel, device, register_tile.rewrite)
    yield tiled
