"""Which elements a block copies from global to shared memory: each of its threads is run by name and number.

A copy is spelled in many ways: an element for each thread, a loop that strides by the block, rows and columns by `/`
and `%`, vectors, `cp.async`. So the statements are run for every thread of the block, with numbers for what is known
(`threadIdx`, the block's size, constants) and names for what is the same for all threads. The elements that were
written to a tile are then rows, or they are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.block_names import BlockNames, Tile
from kernel_lsp.refine.rewrites.copies.thread_run import CopyGuard, ThreadRun, WrittenTile
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number, symbol
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError


@dataclass(frozen=True)
class CopiedRows:
    """Rows of a tile that lie in global memory with a fixed distance, and neighbours within.

    Attributes:
        tile: the tile.
        start: element of the tile at which its first row begins.
        moved: elements of the tile ahead of `start` whose number is not known, but the same for all: of its stage.
        rows: their number.
        columns: elements of a row.
        pitch: elements from one row of the tile to the next.
        source: pointer parameter that they come from.
        offset: element of the source at which the first row begins.
        distance: elements from one row of the source to the next; 0 for a single row.
        guards: what has to hold for all threads to copy, one for each kind of bound.
    """

    tile: Tile
    start: int
    moved: Polynomial
    rows: int
    columns: int
    pitch: int
    source: str
    offset: Polynomial
    distance: Polynomial
    guards: tuple[CopyGuard, ...]


def copied_rows(block: BlockNames, statement: Node, before: Sequence[Node]) -> tuple[CopiedRows, ...]:
    """Return all that a statement does, as rows of tiles; `before` declares what it may use.

    Raises:
        NotApplicableError: it does something else, or what it copies are no such rows.
    """
    written: dict[str, WrittenTile] = {}
    x, y, z = block.shape
    for thread in range(x * y * z):
        at = {"threadIdx.x": thread % x, "threadIdx.y": thread // x % y, "threadIdx.z": thread // (x * y)}
        run = ThreadRun(block, {name: number(value) for name, value in at.items()}, written)
        for one in before:
            run.declare(one)
        run.step(statement, ())
    return tuple(_as_rows(block, block.tiles[name], what) for name, what in written.items())


def _as_rows(block: BlockNames, tile: Tile, what: WrittenTile) -> CopiedRows:
    """Return what was written to a tile as rows."""
    places = sorted(what.sources)
    first = what.sources[places[0]]
    starts = [places[0]]
    for before, at in pairwise(places):
        if at != before + 1 or (what.sources[at] - what.sources[before]).value != 1:
            starts.append(at)
    rows, columns = len(starts), len(places) // len(starts)
    if columns == 1 and len(places) > 1:
        raise NotApplicableError(f"neighbours in `{tile.name}` are none in global memory")
    pitch = starts[1] - starts[0] if rows > 1 else columns
    distance = what.sources[starts[1]] - first if rows > 1 else number(0)
    if places[0] < 0 or places[-1] >= prod(tile.extents):
        raise NotApplicableError(f"`{tile.name}` is filled beyond its end")
    for row, start in enumerate(starts):
        apart = what.sources[start] - first - number(row) * distance
        if start != starts[0] + row * pitch or apart.terms or start + columns - 1 not in what.sources:
            raise NotApplicableError(f"`{tile.name}` is not filled by whole rows of one matrix")
    for amount in (starts[0], columns, pitch):
        if amount * tile.element_bytes % 16:
            raise NotApplicableError(f"rows of `{tile.name}` are not made of pieces of 16 bytes")
    pointers = [key[0] for key, n in first.terms.items() if len(key) == 1 and n == 1 and key[0] in block.sources]
    if len(pointers) != 1:
        raise NotApplicableError(f"`{tile.name}` does not come from one pointer")
    if block.sources[pointers[0]] != tile.type:
        raise NotApplicableError(f"`{tile.name}` has other elements than `{pointers[0]}`")
    offset, guards = first - symbol(pointers[0]), tuple(what.guards.values())
    return CopiedRows(tile, starts[0], what.moved, rows, columns, pitch, pointers[0], offset, distance, guards)
