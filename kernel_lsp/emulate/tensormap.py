"""Tensor maps: how a kernel's tensor lies in memory, and which box of it a tensor copy moves.

For the driver a tensor map is 128 opaque bytes. Where there is no GPU, these are the map's parameters; only the
emulator reads them. The parameters and what they must fulfil are those of `cuTensorMapEncodeTiled` in the CUDA driver
API.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kernel_lsp.emulate.errors import NeedsGpu

BYTES = 128
MAGIC = b"KLtm"
"""The first bytes of a map in our encoding."""
_HEAD = struct.Struct("<4s4B")  # magic, type, rank, swizzle, fill
_ARRAYS = struct.Struct("<Q5Q4Q5H5B")
_PIXELS = struct.Struct("<3h3hHH")  # corners, channels, pixels: all 0 in a tiled map
_PIXELS_AT = 104
FIELDS = {
    "elemtype": (4, 1),
    "rank": (5, 1),
    "swizzle_mode": (6, 1),
    "fill_mode": (7, 1),
    "global_address": (8, 8),
    "global_dim": (16, 8),
    "global_stride": (56, 8),
    "box_dim": (88, 2),
    "element_stride": (98, 1),
}
"""Field of `tensormap.replace` -> its offset in our encoding, that of the first dimension, and its bytes."""
_MOST_BOX = 256
_MOST_PIXELS = 1024
_MOST_STRIDE = 8
_ALIGN = 16

ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
"""Bytes of each `CUtensorMapDataType` before the packed ones."""
TF32 = 11
"""`CU_TENSOR_MAP_DATA_TYPE_TFLOAT32`: float32 in global memory, of which loads keep 10 bits of the mantissa."""
_EMULATED = frozenset((*range(10), TF32))  # the others make zeros of subnormals
DRIVER_TYPES = {8: 10, 9: 8, 10: 9}
"""`.elemtype` of `tensormap.replace` -> `CUtensorMapDataType`, where the two number a type differently."""
SWIZZLE_BYTES = (0, 32, 64, 128)
"""Bytes of a row of the pattern of each `CUtensorMapSwizzle`; 0 without one."""


@dataclass(frozen=True, slots=True)
class Im2col:
    """The part of an im2col map that a tiled one does not have, for a tensor (channels, width, height, depth, images).

    Attributes:
        lower: where the first pixel of the bounding box lies in each spatial dimension, from the tensor's first one.
        upper: where its last pixel lies, from the tensor's last one.
        channels: elements of each pixel that a copy moves.
        pixels: pixels that a copy moves.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map.

    Attributes:
        kind: a `CUtensorMapDataType`.
        address: of the tensor in global memory.
        shape: elements in each dimension, the innermost first.
        strides: bytes between neighbours in each dimension but the innermost.
        box: elements of the box in each dimension; all 1 in an im2col map.
        steps: of each dimension of the box every so many elements are copied.
        swizzle: a `CUtensorMapSwizzle`.
        fills_with_nan: whether elements outside the tensor are NaNs instead of zeros.
        im2col: what makes it an im2col map; None for a tiled one.
    """

    kind: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    fills_with_nan: bool = False
    im2col: Im2col | None = None

    @property
    def element_bytes(self) -> int:
        """Return the bytes of an element."""
        return ELEMENT_BYTES[self.kind]

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the elements in each dimension that a copy moves, the innermost first."""
        return tuple(-(-extent // step) for extent, step in zip(self.box, (1, *self.steps[1:]), strict=True))

    @property
    def inner_bytes(self) -> int:
        """Return the bytes of a row of a box, or of the channels of a pixel."""
        return (self.im2col.channels if self.im2col else self.box[0]) * self.element_bytes

    @property
    def pitch(self) -> int:
        """Return the bytes from row to row of a box in shared memory."""
        return SWIZZLE_BYTES[self.swizzle] or self.inner_bytes

    def span(self, elements: int) -> int:
        """Return the bytes of shared memory among which so many elements of a box lie."""
        return elements * self.element_bytes // self.inner_bytes * self.pitch

    def fault(self) -> str | None:
        """Return why the driver refuses such a map; None if it does not."""
        rank, inner = len(self.shape), self.inner_bytes
        if self.address % _ALIGN:
            return f"the tensor's address is not a multiple of {_ALIGN}"
        if any(stride % _ALIGN or not 0 < stride < 1 << 40 for stride in self.strides):
            return f"a stride is not a multiple of {_ALIGN} bytes"
        if not 1 <= rank <= 5 or any(not 0 < extent <= 1 << 32 for extent in self.shape):
            return "a tensor has one to five dimensions of at least one element"
        if any(not 0 < extent <= _MOST_BOX for extent in self.box):
            return f"a box has 1 to {_MOST_BOX} elements in each dimension"
        if any(not 0 < step <= _MOST_STRIDE for step in self.steps):
            return f"an element stride is 1 to {_MOST_STRIDE}"
        if self.im2col and not 3 <= rank <= 5:
            return "a tensor of an im2col map has three to five dimensions"
        if self.im2col and not (0 < self.im2col.channels <= _MOST_BOX and 0 < self.im2col.pixels <= _MOST_PIXELS):
            return f"a copy moves 1 to {_MOST_BOX} channels of 1 to {_MOST_PIXELS} pixels"
        if inner % _ALIGN:
            return f"the inner dimension of the box has {inner} bytes, no multiple of {_ALIGN}"
        most = SWIZZLE_BYTES[self.swizzle]
        if most and inner > most:
            return f"the inner dimension of the box has {inner} bytes, more than the {most} of its swizzle"
        return None

    def encode(self) -> bytes:
        """Return the map as 128 bytes."""
        rank = len(self.shape)
        head = _HEAD.pack(MAGIC, self.kind, rank, self.swizzle, self.fills_with_nan)
        padded = [
            *(*self.shape, *(1,) * (5 - rank)),
            *(*self.strides, *(0,) * (5 - rank))[:4],
            *(*self.box, *(1,) * (5 - rank)),
            *(*self.steps, *(1,) * (5 - rank)),
        ]
        data = bytearray((head + _ARRAYS.pack(self.address, *padded)).ljust(BYTES, b"\0"))
        if self.im2col:
            corners = [*self.im2col.lower, *(0,) * (5 - rank), *self.im2col.upper, *(0,) * (5 - rank)]
            _PIXELS.pack_into(data, _PIXELS_AT, *corners, self.im2col.channels, self.im2col.pixels)
        return bytes(data)


def decode(data: bytes) -> TensorMap:
    """Return the map that `encode` has packed.

    Raises:
        NeedsGpu: it has not, or the map is of a kind that is not emulated.
    """
    magic, kind, rank, swizzle, fill = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise NeedsGpu("a tensor map that was not made by cuTensorMapEncodeTiled, or was changed by the kernel,")
    if kind not in _EMULATED:
        raise NeedsGpu("a tensor map that makes zeros of subnormal numbers")
    if fill:
        raise NeedsGpu("a tensor map that fills with NaNs")
    address, *rest = _ARRAYS.unpack_from(data, _HEAD.size)
    shape, strides, box, steps = rest[:5], rest[5:9], rest[9:14], rest[14:]
    *corners, channels, pixels = _PIXELS.unpack_from(data, _PIXELS_AT)
    lower, upper = (tuple(corners[start : start + rank - 2]) for start in (0, 3))
    return TensorMap(
        kind,
        address,
        tuple(shape[:rank]),
        tuple(strides[: rank - 1]),
        tuple(box[:rank]),
        tuple(steps[:rank]),
        swizzle,
        im2col=Im2col(lower, upper, channels, pixels) if pixels else None,
    )
