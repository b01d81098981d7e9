"""Random tensor maps, and the instructions that copy their boxes."""

from dataclasses import dataclass
from math import prod

import numpy as np

from tests.bench.pipelines.pipeline import TYPES, Map

SWIZZLES = (0, 32, 64, 128)
_MOST_BOX_BYTES = 8192
_MOST_TILES = 12
_MOST_EXTENT = 256  # of a box in one dimension
PIECE_BYTES = 16
"""A box begins at a multiple of this many bytes in the innermost dimension."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a tensor is cut into boxes: dimensions from the innermost on.

    Attributes:
        map: of the tensor.
        nbytes: of the tensor's memory, from the start of its buffer.
        counts: elements of a box, in each dimension, that are copied.
        tiles: boxes in each dimension.
        origin: the first box's place.
        span: bytes in shared memory in which the box lies.
    """

    map: Map
    nbytes: int
    counts: tuple[int, ...]
    tiles: tuple[int, ...]
    origin: tuple[int, ...]
    span: int

    def places(self, tile: str) -> str:
        """The coordinates of a tile in CUDA, separated by commas."""
        texts: list[str] = []
        before = 1
        for count, pitch, start in zip(self.tiles, self.map.box, self.origin, strict=True):
            texts.append(f"{tile} / {before} % {count} * {pitch} + {start}")
            before *= count
        return ", ".join(texts)


def random_tiling(chance: np.random.Generator, kind: str, buffer: int, narrow: bool) -> Tiling:
    """Cut a tensor at random; with `narrow` its rows in shared memory are shorter than the swizzle's."""
    size = TYPES[kind].size
    mode = int(chance.integers(2 if narrow else 0, 4))
    width = SWIZZLES[mode]
    if narrow:
        inner = PIECE_BYTES * int(chance.integers(1, width // PIECE_BYTES))
    else:
        inner = width or PIECE_BYTES * int(chance.integers(1, min(256 * size, 1024) // PIECE_BYTES + 1))
    rank = int(chance.choice([1, 2, 3, 4, 5], p=[0.08, 0.5, 0.22, 0.1, 0.1]))
    counts = [inner // size]
    for _ in range(rank - 1):
        left = _MOST_BOX_BYTES // (prod(counts) * size)
        counts.append(int(chance.integers(1, min(left, 64) + 1)))
    steps = [1] * rank
    if rank > 1 and chance.random() < 0.2:
        steps[int(chance.integers(1, rank))] = int(chance.integers(2, 4))
    box = [min((c - 1) * s + int(chance.integers(1, s + 1)), _MOST_EXTENT) for c, s in zip(counts, steps, strict=True)]
    return _cut(chance, kind, buffer, (counts, steps, box), mode)


def tiling_like(chance: np.random.Generator, kind: str, buffer: int, like: Tiling, narrow: bool) -> Tiling:
    """Cut another tensor into as many boxes of the same elements, to be written to."""
    inner = like.counts[0] * TYPES[kind].size
    if narrow:
        mode = int(chance.choice([0, *(mode for mode, width in enumerate(SWIZZLES) if width >= inner)]))
    else:
        mode = SWIZZLES.index(inner) if inner in SWIZZLES and chance.random() < 0.6 else 0
    steps = [1] * len(like.counts)
    return _cut(chance, kind, buffer, (list(like.counts), steps, list(like.counts)), mode, like.tiles)


def _cut(
    chance: np.random.Generator,
    kind: str,
    buffer: int,
    box: tuple[list[int], list[int], list[int]],
    mode: int,
    tiles: tuple[int, ...] = (),
) -> Tiling:
    """Put a tensor round boxes, which may lie partly outside of it; given `tiles`, it is written to."""
    counts, steps, extents = box
    size, rank = TYPES[kind].size, len(counts)
    numbers: list[int] = []
    for _ in range(rank):
        numbers.append(int(chance.integers(1, max(2, min(5, _MOST_TILES // prod(numbers) + 1)))))
    numbers = list(tiles) or numbers
    origin, shape = [0] * rank, [count * extent for count, extent in zip(numbers, extents, strict=True)]
    for dimension, extent in enumerate(extents):
        if chance.random() < 0.5:
            shape[dimension] = max(1, shape[dimension] - int(chance.integers(0, extent + 1)))
        if chance.random() < 0.25:
            place = int(chance.integers(-extent, extent + 1))
            origin[dimension] = abs(place) if tiles else place  # stores at negative places are illegal
    origin[0] -= origin[0] % (PIECE_BYTES // size)
    strides: list[int] = []
    row = -(-shape[0] * size // PIECE_BYTES) * PIECE_BYTES
    for extent in shape[1:]:
        strides.append(row + PIECE_BYTES * int(chance.choice([0, 0, 1, 3])))
        row = strides[-1] * extent
    offset = PIECE_BYTES * int(chance.choice([0, 0, 1, 5]))
    made = Map(buffer, offset, TYPES[kind].number, tuple(shape), tuple(strides), tuple(extents), tuple(steps), mode)
    span = prod(counts[1:]) * (SWIZZLES[mode] or counts[0] * size)
    return Tiling(made, offset + row, tuple(counts), tuple(numbers), tuple(origin), span)


def box_copy(rank: int, multicast: bool = False) -> str:
    """`copy_box` into shared memory, in CUDA; with `multicast`, into that of both blocks of a cluster."""
    last = rank + 2
    opcode = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    opcode += ".multicast::cluster" if multicast else ""
    mask = f", %{last + 1}" if multicast else ""
    operands = ['"l"(map)', *(f'"r"(c{d})' for d in range(rank)), '"r"(at(bar))']
    operands += ['"h"(static_cast<uint16_t>(3))'] if multicast else []
    return (
        f"__device__ inline void copy_box(void* to, const TensorMap* map, uint64_t* bar, {_coordinates(rank)}) {{\n"
        f'    asm volatile("{opcode} [%0], [%1, {_places(rank, 2)}], [%{last}]{mask};"\n'
        f'        ::"r"(at(to)), {", ".join(operands)} : "memory");\n}}\n'
    )


def box_store(rank: int, reduction: str = "") -> str:
    """`store_box` out of shared memory, in CUDA, which may be a reduction."""
    opcode = f"cp{'.reduce' if reduction else ''}.async.bulk.tensor.{rank}d.global.shared::cta"
    operands = ['"l"(map)', *(f'"r"(c{d})' for d in range(rank)), '"r"(at(from))']
    return (
        f"__device__ inline void store_box(const TensorMap* map, const void* from, {_coordinates(rank)}) {{\n"
        f'    asm volatile("{opcode}{"." + reduction if reduction else ""}.tile.bulk_group '
        f'[%0, {_places(rank, 1)}], [%{rank + 1}];"\n'
        f'        ::{", ".join(operands)} : "memory");\n}}\n'
    )


def _coordinates(rank: int) -> str:
    return ", ".join(f"int c{dimension}" for dimension in range(rank))


def _places(rank: int, first: int) -> str:
    return "{" + ", ".join(f"%{first + dimension}" for dimension in range(rank)) + "}"
