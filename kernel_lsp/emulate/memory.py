"""The global memory of a kernel: named buffers at the addresses that their bytes have in this process.

Worker-only: imports numpy. Nothing is copied: a buffer may be a tensor's storage.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
from enum import Enum, auto
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.ctypeslib import as_array
from numpy.typing import NDArray

from kernel_lsp.emulate.program import Program

Array: TypeAlias = NDArray[Any]

SHARED_WINDOW = 1 << 48  # generic addresses of shared and of local memory: no process has its own memory there
LOCAL_WINDOW = 1 << 49
WINDOW_BYTES = 1 << 24
CLUSTER_BLOCKS = 16  # at most; behind its own one, a thread sees the shared memory of each block of its cluster
_GUARD = 4096
_ALIGN = 256
_GRAIN = 16  # bytes of the widest access
_SPARSE = 1 << 24  # bytes
_MAP_NORESERVE = 0x4000  # Linux; not every Python names it


class Unwritten(Enum):
    """The treatment of loads from global memory that is not known to be written.

    Attributes:
        FAULT: it is unwritten, which is reported once something depends on the value.
        UNKNOWN: blocks that were left out may have written it: the launch ends once something depends on the value.
        ANYTHING: likewise, but no loaded value decides what the kernel does.
    """

    FAULT = auto()
    UNKNOWN = auto()
    ANYTHING = auto()


class Buffer:
    """A range of global memory.

    Attributes:
        name: for messages.
        address, size: bytes.
        writable: true if kernels may write here.
        item: bytes of an element, for messages; 0 if unknown.
        ours: true if the emulator keeps it for itself, so that no message may name it.
        gaps: true if there is memory between its elements.
        start: byte at which the elements are counted from; not 0 where a kernel gets a view.
        data: its bytes.
        valid: for each byte, 0xFF if it has been written, else 0; None if all of them have.
    """

    def __init__(
        self, name: str, data: Array, *, initialised: bool, writable: bool = True, item: int = 0, owner: Any = None
    ) -> None:
        self.name, self.data, self.writable = name, data, writable
        self.item, self.gaps, self.start, self.ours = item, False, 0, False
        self.address, self.size = int(data.ctypes.data), data.nbytes
        self.end = self.address + self.size
        # Accesses up to 16 bytes are aligned; a window of whole grains lets one view serve them all.
        self.base = self.address & -_GRAIN
        self._margin = self.address - self.base
        self._window = -(-(self.end - self.base) // _GRAIN) * _GRAIN
        self._bytes = _bytes_at(self.base, self._window)
        self._owner = (owner, data)
        self._views: dict[np.dtype[Any], Array] = {}
        self._valid: Array | None = None if initialised else np.zeros(self._window, np.uint8)
        self._valid_views: dict[np.dtype[Any], Array] = {}
        self.shadows: dict[str, Array] = {}

    @property
    def valid(self) -> Array | None:
        """Return 0xFF for each byte that has been written, else 0; None if all have."""
        return None if self._valid is None else self._valid[self._margin : self._margin + self.size]

    def view(self, kind: np.dtype[Any]) -> Array:
        """Return the bytes from `base` on as elements of a type."""
        found = self._views.get(kind)
        if found is None:
            found = self._views[kind] = self._bytes.view(kind)
        return found

    def valid_view(self, kind: np.dtype[Any]) -> Array | None:
        """Return `valid` as elements of a type, from `base` on: all ones if all bytes of an element have been
        written.
        """
        if self._valid is None:
            return None
        found = self._valid_views.get(kind)
        if found is None:
            found = self._valid_views[kind] = self._valid.view(kind)
        return found

    def initialise(self, start: int = 0, size: int | None = None) -> None:
        """Mark bytes from `start` on as written."""
        if self._valid is None:
            return
        stop = self.size if size is None else start + size
        self._valid[self._margin + start : self._margin + stop] = 0xFF
        if stop - start == self.size:
            self._valid = None
            self._valid_views.clear()

    def forget(self) -> None:
        """Mark all bytes as unwritten."""
        self._valid = np.zeros(self._window, np.uint8)
        self._valid_views.clear()

    def shadow(self, name: str, grain: int) -> Array:
        """Return an array kept with the buffer, initially zeros: an int64 for each `grain` bytes from `base` on."""
        found = self.shadows.get(name)
        if found is None or len(found) != self._window // grain:
            found = self.shadows[name] = _zeros(self._window // grain)
        return found


class GlobalMemory:
    """The buffers that kernels can reach, and the variables of the modules that ran on them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._buffers: list[Buffer] = []
        self._modules: dict[Program, dict[str, Buffer]] = {}
        self.stamps = 1  # grows from launch to launch, to tell old entries in shadows apart
        self.ranges = np.zeros((0, 2), np.int64)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Return all buffers by address."""
        return tuple(self._buffers)

    def allocate(
        self, name: str, content: int | bytes | Array, *, initialised: bool | None = None, writable: bool = True
    ) -> Buffer:
        """Return a new buffer of a size, or with a copy of given bytes; by default initialised if it has content."""
        data: Array | None = None
        item = 0
        if isinstance(content, np.ndarray):
            item = content.itemsize
            data = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        elif isinstance(content, bytes):
            data = np.frombuffer(content, np.uint8)
        size = content if isinstance(content, int) else len(data) if data is not None else 0
        owner = np.zeros(size + 2 * _GUARD + _ALIGN, np.uint8)
        start = -(owner.ctypes.data + _GUARD) % _ALIGN + _GUARD
        memory = owner[start : start + size]
        if data is not None:
            memory[:] = data
        known = data is not None if initialised is None else initialised
        return self._insert(Buffer(name, memory, initialised=known, writable=writable, item=item, owner=owner))

    def attach(self, name: str, address: int, size: int, *, initialised: bool, owner: Any = None) -> Buffer:
        """Make memory of this process a buffer and return it; the buffer keeps `owner` alive."""
        data = _bytes_at(address, size)
        return self._insert(Buffer(name, data, initialised=initialised, owner=owner))

    def release(self, buffer: Buffer) -> None:
        """Remove a buffer."""
        position = self._buffers.index(buffer)
        del self._buffers[position], self._starts[position]
        self._refresh()

    def find(self, address: int) -> Buffer | None:
        """Return the buffer that contains this address; None if there is none."""
        position = bisect.bisect_right(self._starts, address) - 1
        if position < 0:
            return None
        buffer = self._buffers[position]
        return buffer if address < buffer.end else None

    def buffers_within(self, address: int, size: int) -> tuple[Buffer, ...]:
        """Return the buffers that have a byte in common with a range."""
        first = max(bisect.bisect_right(self._starts, address) - 1, 0)
        last = bisect.bisect_left(self._starts, address + size)
        return tuple(buffer for buffer in self._buffers[first:last] if buffer.end > address)

    def nearest(self, address: int) -> Buffer | None:
        """Return the buffer of the user's closest to an address; None if there are none."""
        known = (buffer for buffer in self._buffers if not buffer.ours)
        return min(known, key=lambda b: max(b.address - address, address - b.end + 1, 0), default=None)

    def variables(self, program: Program) -> dict[str, Buffer]:
        """Return the module's `.global` and `.const` variables, placed and filled at the first call."""
        placed = self._modules.get(program)
        if placed is None:
            placed = self._modules[program] = {}
            for variable in program.placed:
                content = variable.initial.ljust(variable.size, b"\0")
                placed[variable.name] = self.allocate(variable.name, content, writable=variable.space == "global")
            for variable in program.placed:
                for offset, symbol, addend in variable.relocations:
                    known = placed[symbol].address if symbol in placed else program.numbers.get(symbol, 0)
                    pointer = known + addend if known else 0
                    placed[variable.name].data[offset : offset + 8] = np.frombuffer(
                        pointer.to_bytes(8, "little"), np.uint8
                    )
        return placed

    def _insert(self, buffer: Buffer) -> Buffer:
        position = bisect.bisect_left(self._starts, buffer.address)
        self._starts.insert(position, buffer.address)
        self._buffers.insert(position, buffer)
        self._refresh()
        return buffer

    def _refresh(self) -> None:
        self.ranges = np.array([(b.address, b.end) for b in self._buffers], np.int64).reshape(-1, 2)

    def locate(self, addresses: Array, size: int) -> Array:
        """Return for each address the index in `buffers` of the one that holds `size` bytes from there on; -1 if
        none.
        """
        if not self._buffers:
            return np.full(addresses.shape, -1, np.intp)
        position = np.searchsorted(self.ranges[:, 0], addresses, side="right") - 1
        inside = (position >= 0) & (addresses + size <= self.ranges[position, 1])
        return np.where(inside, position, -1)


def _zeros(count: int) -> Array:
    """Return int64 zeros; many of them take memory only where they are written to, page by page."""
    nbytes = 8 * count
    if nbytes < _SPARSE:
        return np.zeros(count, np.int64)
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.int64)


def _bytes_at(address: int, size: int) -> Array:
    return as_array((ctypes.c_uint8 * size).from_address(address))


@lru_cache
def raw_type(size: int) -> np.dtype[Any]:
    """Return numpy's unsigned type of `size` bytes."""
    return np.dtype(f"<u{size}")
