"""Matrix descriptors: where the elements of `wgmma`'s operands lie in shared memory.

Worker-only: imports numpy. The canonical layouts are those of the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared
Memory Layout". Pieces of 16 bytes are arranged in groups of 8; the two strides of a descriptor lead from group to
group. A swizzle then exchanges pieces as in copies of boxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.bulk_memory import CHUNK
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.tensormap import SWIZZLE_BYTES
from kernel_lsp.emulate.tiles import swizzled

Array: TypeAlias = NDArray[Any]

_FIELD = 0x3FFF  # 14 bits, in units of 16 bytes
_GROUP = 8


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A matrix descriptor of one warpgroup or, as arrays (warpgroups, 1), of several with one swizzle.

    Attributes:
        start: address in shared memory.
        leading, stride: the leading and the stride dimension's byte offset.
        swizzle: a `CUtensorMapSwizzle`.
    """

    start: Array
    leading: Array
    stride: Array
    swizzle: int

    def places(self, rows: int, depth: int, size: int, transposed: bool) -> Array:
        """Return the addresses of a matrix's elements, (warpgroups, rows * depth), the depth fastest.

        Args:
            rows: extent in M or N.
            depth: extent in K.
            size: bytes of an element.
            transposed: whether neighbours in M or N lie side by side, not those in K.
        """
        row, k = (index.reshape(-1) for index in np.divmod(np.arange(rows * depth), depth))
        width = SWIZZLE_BYTES[self.swizzle]
        if transposed:
            group, within = k // _GROUP, k % _GROUP
            if width:
                outer, inner = np.divmod(row * size, width)
                offsets = outer * self.leading + inner + within * width + group * self.stride
            else:
                outer, inner = np.divmod(row * size, CHUNK)
                offsets = outer * self.stride + inner + within * CHUNK + group * self.leading
        else:
            group, within = row // _GROUP, row % _GROUP
            if width:
                offsets = group * self.stride + within * width + k * size
            else:
                outer, inner = np.divmod(k * size, CHUNK)
                offsets = group * self.stride + within * CHUNK + outer * self.leading + inner
        return swizzled(self.start + offsets, self.swizzle)


def read_descriptors(bits: Array) -> Descriptor:
    """Return the descriptors of warpgroups, (warpgroups,) uint64 each.

    Raises:
        NeedsGpu: they have a base offset, or different swizzles.
    """
    words = bits.astype(np.int64)[:, None]
    if (words >> 49 & 7).any():
        raise NeedsGpu("a matrix descriptor with a base offset")
    modes = np.unique(words >> 62 & 3)
    if len(modes) > 1:
        raise NeedsGpu("one wgmma with descriptors of different swizzles")
    start, leading, stride = ((words >> shift & _FIELD) << 4 for shift in (0, 16, 32))
    return Descriptor(start, leading, stride, (0, 3, 2, 1)[int(modes[0])])
