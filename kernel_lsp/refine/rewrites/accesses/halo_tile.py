"""Read a stencil's or a filter's neighbours from a tile in shared memory that a block loads with its halo.

Neighbouring threads of the naive kernel load the same elements again and again. In the new one the threads of a block
load what all of them need, once and side by side, and meet at a barrier. Loads keep to rows and columns that some
thread of the naive kernel reads; arrays are taken to have whole rows, and those of other names for other arrays. The
tile has the shape of the launched blocks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.accesses.neighbours import (
    NeighbourReads,
    Range,
    chosen,
    find_neighbours,
    head_of,
    inside,
    place_names,
    plus,
    thread_numbers,
)
from kernel_lsp.refine.rewrites.reading.affine import number
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, body_unit, indent_at
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.launch_sites import find_launches
from kernel_lsp.refine.rewrites.writing.spelling import zero_of
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import span_of, text_of

_LOOPED = re.compile(r"@")
_MOST = 40 * 1024  # bytes of shared memory, of the 48 KiB that every block may have
_BYTES = {"double": 8, "float4": 16, "float2": 8}


@dataclass(frozen=True)
class _Tile:
    """A block's elements of one array, and those around."""

    of: NeighbourReads
    name: str
    rows: Range
    columns: Range


def _tiles(use: MemoryUse, axes: str) -> list[_Tile]:
    """Return the tiles of a kernel.

    Raises:
        NotApplicableError: no array is read at several neighbours.
    """
    found: list[_Tile] = []
    for array in find_neighbours(use, axes):
        places = {(str(read.row), str(read.column)) for read in array.reads}
        looped = any(_LOOPED.search(place) for pair in places for place in pair)
        if "threadIdx.z" in array.rest.names() or (len(places) < 3 and not looped):
            continue
        name = use.scopes.tree.fresh(f"{array.pointer.name}_tile")
        found.append(_Tile(array, name, array.hull(lambda read: read.rows), array.hull(lambda read: read.columns)))
    if not found:
        raise NotApplicableError("no neighbours that are read several times")
    return found


def _block(use: MemoryUse, workload: SourceFile | None, axes: str) -> list[int]:
    """Return the threads of a block along x and y.

    Raises:
        NotApplicableError: launches differ, or do not say it.
    """
    shapes: set[tuple[int | None, ...]] = set()
    for site in find_launches(use.scopes.tree, workload) or []:
        shapes.add(site.shape())
    shape = shapes.pop() if len(shapes) == 1 else ()
    known = [n for n in shape if n is not None]
    if len(known) != len(shape) or len(known) < len(axes) or any(n != 1 for n in known[len(axes) :]):
        raise NotApplicableError("blocks of unknown shape")
    return known[: len(axes)]


@dataclass(frozen=True)
class _Names:
    """Names of a block's sizes, empty for an axis without one, and of a thread's place in it."""

    columns: str
    rows: str
    tx: str
    ty: str


def _loaded(group: list[_Tile], tree: KernelTree, names: _Names, unit: str) -> list[str]:
    """Return the lines that load tiles of one shape."""
    tall = bool(names.rows)
    r, c = tree.fresh("r"), tree.fresh("c")
    row, column = place_names(tree)
    rows, columns = group[0].rows, group[0].columns
    height, width = (plus(size, r.length - number(1)) for size, r in ((names.rows, rows), (names.columns, columns)))
    lines = [f"__shared__ {t.of.element} {t.name}{f'[{height}]' if tall else ''}[{width}];" for t in group]
    pad = unit if tall else ""
    lines += [f"for (int {r} = {names.ty}; {r} < {height}; {r} += {names.rows}) {{"] if tall else []
    lines.append(f"{pad}for (int {c} = {names.tx}; {c} < {width}; {c} += {names.columns}) {{")
    pad += unit
    at_row = f"{row} = {plus(f'blockIdx.y * {names.rows} + {r}', rows.first)}, " if tall else ""
    lines.append(f"{pad}const int {at_row}{column} = {plus(f'blockIdx.x * {names.columns} + {c}', columns.first)};")
    for tile in group:
        array = tile.of
        bounds = inside(column, columns.first, array.hull(lambda read: read.column_bounds))
        if tall:
            bounds = [*inside(row, rows.first, array.hull(lambda read: read.row_bounds)), *bounds]
        element = f"{tile.name}[{r}][{c}]" if tall else f"{tile.name}[{c}]"
        loaded = f"{array.pointer.name}[{array.index(row, column)}]"
        lines += chosen(f"{pad}{element} =", bounds, loaded, zero_of(array.element), pad + unit)
    return [*lines, *([f"{unit}}}"] if tall else []), "}"]


def _reads(tile: _Tile, names: _Names) -> Iterator[Edit]:
    for read in tile.of.reads:
        column = f"[{plus(names.tx, read.column - tile.columns.first)}]"
        row = f"[{plus(names.ty, read.row - tile.rows.first)}]" if names.rows else ""
        yield Edit(span_of(read.node), f"{tile.name}{row}{column}")


def _bytes(tile: _Tile, sizes: list[int]) -> int | None:
    """Return the size of a tile, as far as it is known."""
    lengths = (tile.columns.length.value, tile.rows.length.value)
    total = _BYTES.get(tile.of.element, 4)
    for size, length in zip(sizes, lengths, strict=False):
        total *= size + (length or 16) - 1
    return total


def _rewritten(use: MemoryUse, workload: SourceFile | None) -> list[Edit]:
    """Return the edits of the kernel."""
    tree, numbers = use.scopes.tree, thread_numbers(use)
    axes = "xy" if set(numbers) == {"x", "y"} else "x"
    if axes == "x" and ("x" not in numbers or re.search(r"Idx\.[yz]", text_of(tree.body))):
        raise NotApplicableError("threads of other axes")
    tiles, sizes = _tiles(use, axes), _block(use, workload, axes)
    if sum(_bytes(tile, sizes) or 0 for tile in tiles) > _MOST:
        raise NotApplicableError("tiles that are too large")
    ahead, first = head_of(tree, [numbers[axis].statement for axis in axes])
    _check_ahead(use, tiles, ahead)
    tall = axes == "xy"
    names = _Names(*(tree.fresh(name) for name in ("COLUMNS", "ROWS", "tx", "ty")))
    names = names if tall else replace(names, rows="", ty="")
    arrays = " and ".join(f"`{tile.of.pointer.name}`" for tile in tiles)
    shape = zip((names.columns, names.rows), sizes, strict=False)
    groups: dict[str, list[_Tile]] = {}
    for tile in tiles:
        groups.setdefault(f"{tile.rows} {tile.columns}", []).append(tile)
    pad = indent_at(tree.file.text, first.start_byte)
    unit = body_unit(pad)
    lines = [
        f"// A block loads its part of {arrays}, and the elements around, once.",
        f"constexpr int {', '.join(f'{name} = {size}' for name, size in shape)};  // of a block",
        f"const int {names.tx} = threadIdx.x{f', {names.ty} = threadIdx.y' if tall else ''};",
        *(line for group in groups.values() for line in _loaded(group, tree, names, unit)),
        "__syncthreads();",
    ]
    head = Edit(Span(first.start_byte, first.start_byte), "".join(f"{line}\n{pad}" for line in lines))
    return [head, *(edit for tile in tiles for edit in _reads(tile, names))]


def _check_ahead(use: MemoryUse, tiles: list[_Tile], ahead: list[Node]) -> None:
    """Refuse reads ahead of the barrier."""
    for read in (read for tile in tiles for read in tile.of.reads):
        if any(span_of(node).holds(span_of(read.node)) for node in ahead):
            raise NotApplicableError("a read ahead of the tile")


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with tiles of the launched blocks' shape."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.threads_meet:
            return
        edits = _rewritten(MemoryUse(Scopes(tree)), workload_file)
    except LookupError:
        return
    file = tree.edited(*edits).file
    yield Candidate(kernel.language, file, workload_file, "a tile with a halo in shared memory", "rewrite:halo_tile")
