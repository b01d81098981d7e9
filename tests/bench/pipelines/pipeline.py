"""A pipeline: the text of one kernel, its launch, and the memory and tensor maps that it gets."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kernel_lsp.emulate.tensormap import Im2col, TensorMap

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

PRELUDE = (Path(__file__).parent / "hopper.cuh").read_text()
ENTRY = "pipeline"
ALIGN = 1024  # of a stage, which the widest swizzle repeats after
WARP = 32
MOST_SHARED = 200 << 10  # bytes of shared memory of a block; the hardware has some more


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type of tensor maps: its `CUtensorMapDataType`, its bytes, and what reducing copies do with it."""

    number: int
    size: int
    reductions: tuple[str, ...] = ()


_LOGIC = ("and", "or", "xor")
TYPES = {
    "u8": ElementType(0, 1),
    "u16": ElementType(1, 2),
    "u32": ElementType(2, 4, ("add", "min", "max", "inc", "dec", *_LOGIC)),
    "s32": ElementType(3, 4, ("add", "min", "max")),
    "u64": ElementType(4, 8, ("add", "min", "max")),
    "s64": ElementType(5, 8, ("min", "max")),
    "f16": ElementType(6, 2, ("add", "min", "max")),
    "f32": ElementType(7, 4, ("add",)),
    "f64": ElementType(8, 8),
    "bf16": ElementType(9, 2, ("add", "min", "max")),
}


@dataclass(frozen=True, slots=True)
class Buffer:
    """Global memory of a launch: what it holds before, and the type of its elements."""

    data: Array
    kind: str = "u8"

    @property
    def raw(self) -> Array:
        """Its bytes."""
        return np.ascontiguousarray(self.data).reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map of a buffer from a byte on; dimensions as `cuTensorMapEncodeTiled` has them, or those of im2col."""

    buffer: int
    offset: int
    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int
    im2col: Im2col | None = None

    def at(self, address: int) -> TensorMap:
        """The map of the buffer at an address."""
        place = address + self.offset
        of_boxes = TensorMap(self.number, place, self.shape, self.strides, self.box, self.steps, self.swizzle)
        return replace(of_boxes, im2col=self.im2col)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A launch: the kernel gets the maps, then the addresses of the buffers.

    Attributes:
        seed: what it was drawn from.
        family: `copies`, `columns` or the types of a product, such as `bf16 x bf16 -> f32`.
        words: what it does.
        source: CUDA.
        grid, threads, shared: blocks, threads of a block, bytes of dynamic shared memory.
        buffers: in the order of the parameters.
        maps: likewise.
    """

    seed: int
    family: str
    words: str
    source: str
    grid: int
    threads: int
    shared: int
    buffers: tuple[Buffer, ...]
    maps: tuple[Map, ...]

    @property
    def digest(self) -> str:
        """A checksum of all that the launch depends on."""
        made = hashlib.sha256(self.source.encode())
        made.update(repr((self.grid, self.threads, self.shared, self.maps)).encode())
        for buffer in self.buffers:
            made.update(buffer.raw.tobytes())
        return made.hexdigest()


class Layout:
    """Places in shared memory, given one after the other."""

    def __init__(self) -> None:
        self.end = 0

    def take(self, nbytes: int, align: int = ALIGN) -> int:
        """The offset of so many bytes more."""
        start = -(-self.end // align) * align
        self.end = start + nbytes
        return start


def parameters(maps: Sequence[Map], buffers: Sequence[Buffer]) -> str:
    """The kernel's parameters: maps `m0`, `m1` and so on, then buffers `b0`, `b1` and so on."""
    named = [f"const __grid_constant__ TensorMap m{number}" for number in range(len(maps))]
    return ", ".join(named + [f"unsigned char* b{number}" for number in range(len(buffers))])


def random_bytes(chance: np.random.Generator, kind: str, count: int) -> Array:
    """So many elements: any bits of integers, normal numbers of many sizes of floats."""
    size = TYPES[kind].size
    if kind[0] in "us":
        return chance.integers(0, 256, count * size, np.uint8)
    values = chance.standard_normal(count) * np.exp2(chance.integers(-6, 7, count))
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(f"f{size}").view(np.uint8)
