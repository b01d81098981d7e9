"""Loads and stores: addresses checked, bytes moved, accesses counted and followed for races.

Worker-only: imports numpy. Nothing out of bounds is ever read or written: a bad access gives zero or is dropped, and is
reported. Addresses are int64 arrays, either read for a set of lanes or, if it has a mask, its selected elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.errors import Unfinished
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import Buffer, Unwritten, raw_type

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_ONES: dict[int, Any] = {size: np.dtype(f"<u{size}").type(256**size - 1) for size in (1, 2, 4, 8)}


# Global memory.


def load_global(
    resident: Resident,
    addresses: Array,
    kind: np.dtype[Any],
    vector: int,
    lanes: Lanes,
    site: Site,
    strong: bool = False,
) -> list[Array]:
    """Return the elements of a vector that each lane loads, in the shape of `addresses`."""
    span = kind.itemsize * vector
    resident.count_global(addresses, span, lanes, site, "load")
    chosen = chosen_by(addresses, lanes)
    buffer = _single(resident, chosen, span)
    if buffer is not None:
        return [lanes.spread(part) for part in _load(resident, buffer, chosen, kind, vector, lanes, site, strong)]
    parts = [np.zeros(lanes.shape, kind) for _ in range(vector)]
    for part_buffer, part in _sound(resident, addresses, span, lanes, site, "read"):
        whole = np.zeros(lanes.extent, np.int64)
        lanes.write(whole, addresses)
        chosen = part.select(np.broadcast_to(part.read(whole), part.shape))
        loaded = _load(resident, part_buffer, chosen, kind, vector, part, site, strong)
        for target, value in zip(parts, loaded, strict=True):
            all_of = np.zeros(lanes.extent, kind)
            part.write(all_of, part.spread(value))
            np.copyto(target, lanes.read(all_of), where=lanes.read(part.to_mask()))
    return parts


def store_global(
    resident: Resident, addresses: Array, values: list[Array], lanes: Lanes, site: Site, strong: bool = False
) -> None:
    """Store the elements of a vector, raw bits of the width to store."""
    span = values[0].dtype.itemsize * len(values)
    resident.count_global(addresses, span, lanes, site, "store")
    chosen = lanes.select(np.broadcast_to(addresses, lanes.shape))
    buffer = _single(resident, chosen, span)
    if buffer is not None and buffer.writable:
        _store(
            resident,
            buffer,
            chosen,
            [lanes.select(np.broadcast_to(v, lanes.shape)) for v in values],
            lanes,
            site,
            strong,
        )
        return
    whole = np.zeros(lanes.extent, np.int64)
    lanes.write(whole, addresses)
    for part_buffer, part in _sound(resident, addresses, span, lanes, site, "write"):
        chosen = part.select(np.broadcast_to(part.read(whole), part.shape))
        parts: list[Array] = []
        for value in values:
            spread = np.zeros(lanes.extent, value.dtype)
            lanes.write(spread, value)
            parts.append(part.select(np.broadcast_to(part.read(spread), part.shape)))
        _store(resident, part_buffer, chosen, parts, part, site, strong)


def chosen_by(addresses: Array, lanes: Lanes) -> Array:
    """Return the elements of `addresses` for these lanes."""
    return addresses if lanes.mask is None else lanes.select(addresses)


def _single(resident: Resident, addresses: Array, span: int) -> Buffer | None:
    """Return the buffer that all accesses lie in, if there is only one and all are aligned; else None."""
    low, high = int(addresses.min()), int(addresses.max())
    buffer = resident.last_buffer
    if buffer is None or not (buffer.address <= low and high + span <= buffer.end):
        buffer = resident.memory.find(low)
        if buffer is None or high + span > buffer.end:
            return None
        resident.last_buffer = buffer
    if span > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (span - 1):
        return None
    return buffer


def _sound(
    resident: Resident, addresses: Array, span: int, lanes: Lanes, site: Site, access: str
) -> list[tuple[Buffer, Lanes]]:
    """Return the lanes whose access is in bounds and aligned, by buffer; report the others."""
    memory = resident.memory
    spread = np.broadcast_to(addresses, lanes.shape)
    where = memory.locate(spread, span)
    active = np.ones(lanes.shape, np.bool_) if lanes.mask is None else lanes.mask
    outside = active & (where < 0)
    if outside.any():
        resident.reports.outside(spread, outside, span, lanes, site, access)
    crooked = active & (where >= 0) & ((spread & (span - 1)) != 0)
    if crooked.any():
        resident.reports.misaligned(spread, crooked, span, lanes, site, access, "global")
    good = active & (where >= 0) & ~crooked
    found: list[tuple[Buffer, Lanes]] = []
    for position in np.unique(where[good]):
        buffer = memory.buffers[int(position)]
        mine = good & (where == position)
        if access != "read" and not buffer.writable:
            resident.reports.read_only(buffer, spread, mine, span, lanes, site, access)
            continue
        whole = np.zeros(lanes.extent, np.bool_)
        whole[lanes.index] = mine
        part = Lanes.of(whole)
        if part is not None:
            found.append((buffer, part))
    return found


def _where(offsets: Array, span: int) -> Any:
    """Return offsets in units of `span`: a slice if they ascend by one, else indices."""
    units = offsets >> (span.bit_length() - 1)
    flat = units.reshape(-1)
    count = flat.size
    if count > 32 and flat[-1] - flat[0] == count - 1 and bool((flat[1:] - flat[:-1] == 1).all()):
        return slice(int(flat[0]), int(flat[-1]) + 1)
    return units


def _grains(where: Any, span: int, grain: int, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Return the same places in units of `grain`, and their new shape."""
    each = span // grain
    if isinstance(where, slice):
        return slice(where.start * each, where.stop * each), (*shape, each)
    return where[..., None] * each + np.arange(each), (*shape, each)


def _rows(view: Array, vector: int) -> Array:
    return view[: len(view) // vector * vector].reshape(-1, vector)


def _load(
    resident: Resident,
    buffer: Buffer,
    addresses: Array,
    kind: np.dtype[Any],
    vector: int,
    lanes: Lanes,
    site: Site,
    strong: bool,
) -> list[Array]:
    span = kind.itemsize * vector
    where = _where(addresses - buffer.base, span)
    if resident.check:
        _check_load(resident, buffer, where, addresses, kind, vector, lanes, site, strong)
    view = buffer.view(kind)
    if vector == 1:
        if isinstance(where, slice):
            return [view[where].reshape(addresses.shape).copy()]
        return [view.take(where)]
    rows = _rows(view, vector)
    loaded = rows[where].reshape(*addresses.shape, vector) if isinstance(where, slice) else rows.take(where, axis=0)
    return [np.ascontiguousarray(loaded[..., number]) for number in range(vector)]


def _check_load(
    resident: Resident,
    buffer: Buffer,
    where: Any,
    addresses: Array,
    kind: np.dtype[Any],
    vector: int,
    lanes: Lanes,
    site: Site,
    strong: bool,
) -> None:
    span = kind.itemsize * vector
    valid = None if resident.launch.unwritten is Unwritten.ANYTHING else buffer.valid_view(kind)
    if valid is not None:
        known = (valid if vector == 1 else _rows(valid, vector))[where]
        unknown = ~known
        if unknown.any():
            unknown = unknown.reshape(*addresses.shape, vector)
            resident.missed([unknown[..., n] for n in range(vector)], addresses, lanes, span, site, buffer)
    shadow = resident.global_shadow
    grains, shape = _grains(where, span, shadow.grain, addresses.shape)
    if strong:
        shadow.look(np.unique(resident.geometry.numbers[lanes.row_ids]))
    alike = lanes.mask is None and addresses.shape[0] == 1 and lanes.shape[0] > 1
    blocks = None if alike else resident.blocks_of(lanes, addresses.shape)
    conflict = shadow.read(buffer, grains, blocks, shape, site.index, strong)
    if conflict is not None:
        resident.reports.global_race(buffer, addresses, conflict, span, lanes, site, "read", shape[-1])


def _store(
    resident: Resident, buffer: Buffer, addresses: Array, values: list[Array], lanes: Lanes, site: Site, strong: bool
) -> None:
    kind, vector = values[0].dtype, len(values)
    span = kind.itemsize * vector
    where = _where(addresses - buffer.base, span)
    view = buffer.view(kind) if vector == 1 else _rows(buffer.view(kind), vector)
    data = values[0] if vector == 1 else np.stack(values, axis=-1)
    if isinstance(where, slice):
        data = data.reshape(-1) if vector == 1 else data.reshape(-1, vector)
    if resident.check:
        _check_store(resident, buffer, where, addresses, data, view, lanes, site, strong, span)
    if resident.launch.waits:
        resident.progress(view[where], data)
    view[where] = data
    valid = buffer.valid_view(kind)
    if valid is not None:
        (valid if vector == 1 else _rows(valid, vector))[where] = _ONES[kind.itemsize]
    if resident.check and not isinstance(where, slice):
        lost = view[where] != data
        if lost.any():
            lost = lost.reshape(*addresses.shape, -1).any(axis=-1)
            resident.reports.overwritten(buffer, addresses, where, lost, span, lanes, site)


def _check_store(
    resident: Resident,
    buffer: Buffer,
    where: Any,
    addresses: Array,
    data: Array,
    view: Array,
    lanes: Lanes,
    site: Site,
    strong: bool,
    span: int,
) -> None:
    shadow = resident.global_shadow
    grains, shape = _grains(where, span, shadow.grain, addresses.shape)
    blocks = resident.blocks_of(lanes, addresses.shape)
    if strong:
        conflict = shadow.atomic(buffer, grains, blocks, shape, site.index)
    else:
        changed = (view[where] != data).reshape(*addresses.shape, -1).any(axis=-1)[..., None]
        conflict = shadow.write(buffer, grains, blocks, shape, site.index, changed)
    if conflict is not None:
        resident.reports.global_race(buffer, addresses, conflict, span, lanes, site, "write", shape[-1])


# Shared memory: addresses are relative to the block's window.


def load_shared(
    resident: Resident,
    addresses: Array,
    kind: np.dtype[Any],
    vector: int,
    lanes: Lanes,
    site: Site,
    strong: bool = False,
) -> list[Array]:
    """Return the elements of a vector that each lane loads; addresses that are the same in all blocks may have one
    row.
    """
    span = kind.itemsize * vector
    resident.count_shared(addresses, span, lanes, site, "load")
    addresses, sound, original = _sound_shared(resident, addresses, span, lanes, site, "read")
    if sound is None:
        return [np.zeros((1, 1), kind) for _ in range(vector)]
    lanes = sound
    chosen = chosen_by(addresses, lanes)
    if resident.check:
        shadow = resident.shared_shadow
        if strong:
            shadow.clocks.acquire(lanes)
        conflict, unwritten = shadow.read(chosen, span, lanes, site.index, strong)
        if conflict is not None:
            resident.reports.shared_race(chosen, conflict, span, lanes, site, "read")
        if unwritten is not None:
            unknown = np.where(unwritten, _ONES[kind.itemsize], kind.type(0))
            resident.missed([unknown] * vector, np.broadcast_to(chosen, unwritten.shape), lanes, span, site, None)
    units = chosen >> (kind.itemsize.bit_length() - 1)
    view = resident.shared_view(kind)
    parts: list[Array] = []
    whole_rows = lanes.mask is None and units.shape[0] == 1 and lanes.shape[0] == len(view)
    if whole_rows:
        parts = [view.take(units[0] + number, axis=1) for number in range(vector)]
    else:
        rows = lanes.row_ids[:, None] if lanes.mask is None else lanes.lane_ids // lanes.extent[1]
        flat = rows * view.shape[1] + units
        parts = [view.reshape(-1).take(flat + number) for number in range(vector)]
    parts = [lanes.spread(part) for part in parts]
    if original is not None:
        parts = [_placed(part, lanes, original) for part in parts]
    return parts


def store_shared(
    resident: Resident,
    addresses: Array,
    values: list[Array],
    lanes: Lanes,
    site: Site,
    strong: bool = False,
    pending: bool = False,
) -> tuple[Array, Lanes] | None:
    """Store the elements of a vector, raw bits of the width to store; return the valid accesses.

    `pending` marks a store that is an asynchronous copy under way, which no thread may access.
    """
    kind, vector = values[0].dtype, len(values)
    span = kind.itemsize * vector
    resident.count_shared(addresses, span, lanes, site, "store")
    sound, part, original = _sound_shared(resident, addresses, span, lanes, site, "write")
    if part is None:
        return None
    if original is not None:
        values = [part.read(spread_out(value, lanes)) for value in values]
    _write_shared(resident, chosen_by(sound, part), values, part, site, strong, pending)
    return sound, part


def _write_shared(
    resident: Resident, chosen: Array, values: list[Array], lanes: Lanes, site: Site, strong: bool, pending: bool
) -> None:
    """Store at addresses that are known to be valid."""
    kind, vector = values[0].dtype, len(values)
    span = kind.itemsize * vector
    if resident.check:
        conflict = resident.shared_shadow.write(chosen, span, lanes, site.index, strong, pending)
        if conflict is not None:
            resident.reports.shared_race(chosen, conflict, span, lanes, site, "write")
    units = chosen >> (kind.itemsize.bit_length() - 1)
    view = resident.shared_view(kind)
    flat_view = view.reshape(-1)
    rows = lanes.row_ids[:, None] if lanes.mask is None else lanes.lane_ids // lanes.extent[1]
    flat = rows * view.shape[1] + np.broadcast_to(units, lanes.shape if lanes.mask is None else units.shape)
    for number, value in enumerate(values):
        data = lanes.select(np.broadcast_to(value, lanes.shape))
        where = flat + number
        if resident.launch.waits:
            resident.progress(flat_view[where], data)
        flat_view[where] = data
        if resident.check and (lost := flat_view[where] != data).any():
            resident.reports.same_instruction(flat, lost, chosen, span, lanes, site)


def _sound_shared(
    resident: Resident, addresses: Array, span: int, lanes: Lanes, site: Site, access: str
) -> tuple[Array, Lanes | None, Lanes | None]:
    """Return the accesses that are in bounds and aligned, with their lanes (those given, if all are valid)."""
    chosen = chosen_by(addresses, lanes)
    size = resident.shared_bytes
    low, high = int(chosen.min()), int(chosen.max())
    aligned = span == 1 or not int(np.bitwise_or.reduce(chosen, axis=None)) & (span - 1)
    if low >= 0 and high + span <= size and aligned:
        return addresses, lanes, None
    spread = np.broadcast_to(addresses, lanes.shape)
    active = np.ones(lanes.shape, np.bool_) if lanes.mask is None else lanes.mask
    outside = active & ((spread < 0) | (spread + span > size))
    if outside.any():
        resident.reports.outside_shared(spread, outside, span, lanes, site, access)
    crooked = active & ~outside & ((spread & (span - 1)) != 0)
    if crooked.any():
        resident.reports.misaligned(spread, crooked, span, lanes, site, access, "shared")
    whole = np.zeros(lanes.extent, np.bool_)
    whole[lanes.index] = active & ~outside & ~crooked
    part = Lanes.of(whole)
    return (addresses if part is None else part.read(spread_out(spread, lanes))), part, lanes


def part_of(value: Array, lanes: Lanes, part: Lanes) -> Array:
    """Return a value read for `lanes`, reduced to a part of them."""
    return value if part is lanes else part.read(spread_out(value, lanes))


def cells(
    resident: Resident, space: str, addresses: Array, size: int, lanes: Lanes, site: Site
) -> list[tuple[Lanes, Array, Array]]:
    """Return the memory that atomic accesses update: the lanes, the elements of `size` bytes, and their indices."""
    if space == "shared":
        sound, part, _ = _sound_shared(resident, addresses, size, lanes, site, "atomic")
        if part is None:
            return []
        chosen = part.select(np.broadcast_to(sound, part.shape))
        if resident.check:
            shadow = resident.shared_shadow
            shadow.clocks.acquire(part)
            conflict = shadow.write(chosen, size, part, site.index, True)
            if conflict is not None:
                resident.reports.shared_race(chosen, conflict, size, part, site, "atomic")
        view = resident.shared_bytes_view(size)
        rows = part.lane_ids // part.extent[1]
        return [(part, view.reshape(-1), rows * view.shape[1] + (chosen >> (size.bit_length() - 1)))]
    chosen = lanes.select(np.broadcast_to(addresses, lanes.shape))
    buffer = _single(resident, chosen, size)
    if buffer is not None and buffer.writable:
        found = [(buffer, lanes)]
    else:
        found = _sound(resident, addresses, size, lanes, site, "atomic")
    result: list[tuple[Lanes, Array, Array]] = []
    for each, part in found:
        at = part.select(np.broadcast_to(part_of(addresses, lanes, part), part.shape))
        where = (at - each.base) >> (size.bit_length() - 1)
        if resident.check:
            _check_cells(resident, each, at, where, size, part, site)
            blocks = resident.blocks_of(part, at.shape)
            resident.global_shadow.look(np.unique(blocks))
            resident.shared_shadow.clocks.acquire(part)
            grains, shape = _grains(where, size, resident.global_shadow.grain, at.shape)
            conflict = resident.global_shadow.atomic(each, grains, blocks, shape, site.index)
            if conflict is not None:
                resident.reports.global_race(each, at, conflict, size, part, site, "atomic", shape[-1])
        result.append((part, each.view(raw_type(size)), where))
    return result


def _check_cells(
    resident: Resident, buffer: Buffer, at: Array, where: Array, size: int, lanes: Lanes, site: Site
) -> None:
    """Report unwritten global memory whose old value an atomic update returns."""
    valid = buffer.valid_view(raw_type(size))
    policy = resident.launch.unwritten
    if valid is None or policy is Unwritten.ANYTHING:
        return
    missing = valid[where] != _ONES[size]
    if not missing.any():
        return
    if policy is Unwritten.UNKNOWN:
        raise Unfinished
    resident.reports.unwritten(buffer, at, missing, size, lanes, site)


def spread_out(value: Array, lanes: Lanes) -> Array:
    """Return a value of these lanes with an element for each thread of the extent; zero for the others."""
    whole = np.zeros(lanes.extent, value.dtype)
    lanes.write(whole, value)
    return whole


def _placed(value: Array, part: Lanes, lanes: Lanes) -> Array:
    return lanes.read(spread_out(value, part))


# Local memory: addresses are relative to the thread's window.


def load_local(
    resident: Resident, addresses: Array, kind: np.dtype[Any], vector: int, lanes: Lanes, site: Site
) -> list[Array]:
    """Return the elements of a vector that each lane loads from memory of its own."""
    addresses = _clamped_local(resident, addresses, kind.itemsize * vector, lanes, site, "read")
    return [resident.local.load(addresses + number * kind.itemsize, kind, lanes) for number in range(vector)]


def store_local(resident: Resident, addresses: Array, values: list[Array], lanes: Lanes, site: Site) -> None:
    """Store the elements of a vector."""
    size = values[0].dtype.itemsize
    addresses = _clamped_local(resident, addresses, size * len(values), lanes, site, "write")
    for number, value in enumerate(values):
        resident.local.store(addresses + number * size, value, lanes)


def _clamped_local(resident: Resident, addresses: Array, span: int, lanes: Lanes, site: Site, access: str) -> Array:
    """Return addresses with those out of bounds moved to scratch space behind all variables; report active lanes.

    Inactive lanes may hold any address: a whole warp is loaded for those that take part.
    """
    size = resident.local.size
    if int(addresses.min()) >= 0 and int(addresses.max()) + span <= size:
        return addresses
    outside = (addresses < 0) | (addresses + span > size)
    active = np.broadcast_to(outside, lanes.shape) if lanes.mask is None else outside & lanes.mask
    if active.any():
        resident.reports.outside_local(np.broadcast_to(addresses, lanes.shape), active, span, lanes, site, access)
    return np.where(outside, size, addresses)


class LocalMemory:
    """Memory of each thread, laid out as the hardware does: the same word of neighbouring threads lies together."""

    _WORD = 4
    _SPARE = 16

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.size = 0
        self._words = np.zeros((self._SPARE // self._WORD, threads), np.uint32)

    def reserve(self, size: int) -> None:
        """Make room for at least so many bytes a thread."""
        if size <= self.size:
            return
        words = np.zeros(((size + self._SPARE) // self._WORD + 1, self._threads), np.uint32)
        words[: self.size // self._WORD] = self._words[: self.size // self._WORD]
        self._words, self.size = words, size

    def _place(self, addresses: Array, size: int, lanes: Lanes) -> Array:
        threads = lanes.row_ids[:, None] * lanes.extent[1] + lanes.column_ids[None, :]
        word = (addresses >> 2) * self._threads + threads
        return word * (self._WORD // size) + ((addresses & 3) >> (size.bit_length() - 1)) if size < 4 else word

    def load(self, addresses: Array, kind: np.dtype[Any], lanes: Lanes) -> Array:
        """Return one element for each lane."""
        if kind.itemsize == 8:
            low, high = (self.load(addresses + shift, np.dtype("<u4"), lanes) for shift in (0, 4))
            return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        return self._words.reshape(-1).view(kind).take(self._place(addresses, kind.itemsize, lanes))

    def store(self, addresses: Array, value: Array, lanes: Lanes) -> None:
        """Store one element for each lane."""
        if value.dtype.itemsize == 8:
            for shift in (0, 4):
                self.store(addresses + shift, (value >> np.uint64(8 * shift)).astype(np.uint32), lanes)
            return
        where = np.broadcast_to(self._place(addresses, value.dtype.itemsize, lanes), lanes.shape)
        self._words.reshape(-1).view(value.dtype)[lanes.select(where)] = lanes.select(
            np.broadcast_to(value, lanes.shape)
        )
