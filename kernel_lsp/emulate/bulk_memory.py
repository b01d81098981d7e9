"""Memory as bulk copies use it: many elements for each thread, on the way of the async proxy.

Worker-only: imports numpy. The bytes move at once. That they may move later shows in the shadow of shared memory, where
they are accesses of an agent (see `clocks`) until somebody has waited for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import SECTOR, Site
from kernel_lsp.emulate.errors import Unfinished
from kernel_lsp.emulate.memory import Buffer, Unwritten
from kernel_lsp.emulate.races import Conflict, Issue
from kernel_lsp.emulate.stage_reports import agent_race

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]
Change: TypeAlias = "Callable[[Array, Array, Array], Array]"

CHUNK = 16  # bytes: all bulk copies move multiples of it in shared memory


@dataclass(frozen=True, slots=True)
class Copiers:
    """Threads that start copies with one instruction, (threads,) each.

    Attributes:
        rows: the block to or from whose shared memory they copy.
        owners, columns: the thread.
        site: the instruction.
    """

    rows: Array
    owners: Array
    columns: Array
    site: Site

    def part(self, chosen: Array) -> Copiers:
        """Return some of them."""
        return Copiers(self.rows[chosen], self.owners[chosen], self.columns[chosen], self.site)

    @property
    def issue(self) -> Issue:
        """Return them as the shadow of shared memory knows them."""
        return Issue(self.rows, self.owners, self.columns)


def read_global(
    resident: Resident, addresses: Array, wanted: Array | None, kind: np.dtype[Any], copiers: Copiers
) -> tuple[Array, Array]:
    """Return the elements at addresses (threads, elements), and which of them nothing has written.

    Elements that `wanted` leaves out are zeros.
    """
    data, unwritten = np.zeros(addresses.shape, kind), np.zeros(addresses.shape, np.bool_)
    for buffer, chosen in _buffers(resident, addresses, wanted, kind.itemsize, copiers, "read"):
        at = np.where(chosen, addresses - buffer.base, buffer.address - buffer.base)
        where = at // kind.itemsize
        np.copyto(data, buffer.view(kind)[where], where=chosen)
        valid = buffer.valid_view(kind)
        if valid is not None and resident.launch.unwritten is not Unwritten.ANYTHING:
            unwritten |= chosen & (valid[where] != kind.type(256**kind.itemsize - 1))
        _follow(resident, buffer, at, chosen, kind.itemsize, copiers, "read")
    if unwritten.any() and resident.launch.unwritten is Unwritten.UNKNOWN:
        raise Unfinished
    _count(copiers.site, addresses.shape, kind.itemsize, "load")
    return data, unwritten


def write_global(resident: Resident, addresses: Array, wanted: Array | None, data: Array, copiers: Copiers) -> None:
    """Store elements at addresses (threads, elements), but for those that `wanted` leaves out."""
    kind = data.dtype
    for buffer, chosen in _buffers(resident, addresses, wanted, kind.itemsize, copiers, "write"):
        at = np.where(chosen, addresses - buffer.base, buffer.address - buffer.base)
        _follow(resident, buffer, at, chosen, kind.itemsize, copiers, "write", data)
        where = (at // kind.itemsize)[chosen]
        view = buffer.view(kind)
        resident.progress(view[where], data[chosen])
        view[where] = data[chosen]
        valid = buffer.valid_view(kind)
        if valid is not None:
            valid[where] = kind.type(256**kind.itemsize - 1)
        if resident.check:
            _tell_overwritten(resident, buffer, at, chosen, kind.itemsize, view[where] != data[chosen], copiers)
    _count(copiers.site, addresses.shape, kind.itemsize, "store")


def _tell_overwritten(
    resident: Resident, buffer: Buffer, offsets: Array, chosen: Array, size: int, lost: Array, copiers: Copiers
) -> None:
    """Report copies of different blocks that store other values to one place at once.

    Args:
        resident: the blocks.
        buffer: the memory.
        offsets: of the elements in it (threads, elements).
        chosen: those of them that were stored.
        size: of an element, in bytes.
        lost: for each one chosen, True if memory does not hold what was stored there.
        copiers: the threads.
    """
    if not lost.any():
        return
    threads, blocks = _copiers_of(resident, chosen, copiers)
    places = offsets[chosen]
    first = int(lost.argmax())
    last = int(np.flatnonzero(places == places[first])[-1])
    if blocks[first] != blocks[last]:
        conflict = Conflict(first, "write", copiers.site.index, int(blocks[last]), int(np.count_nonzero(lost)))
        place = int(copiers.owners[threads[first]]), int(copiers.columns[threads[first]])
        address = buffer.base + int(places[first])
        resident.reports.global_race_at(buffer, address, conflict, size, copiers.site, "write", place)


def update_global(
    resident: Resident,
    addresses: Array,
    wanted: Array | None,
    data: Array,
    copiers: Copiers,
    change: Change,
) -> None:
    """Let `change(cells, where, values)` update elements at addresses (threads, elements), as by atomic accesses.

    Unwritten elements stay unwritten. Elements that `wanted` leaves out are not touched.
    """
    kind = data.dtype
    for buffer, chosen in _buffers(resident, addresses, wanted, kind.itemsize, copiers, "atomic"):
        at = np.where(chosen, addresses - buffer.base, buffer.address - buffer.base)
        _follow(resident, buffer, at, chosen, kind.itemsize, copiers, "atomic", data)
        where, view = (at // kind.itemsize)[chosen], buffer.view(kind)
        before = view[where]
        change(view, where, data[chosen])
        resident.progress(before, view[where])
    _count(copiers.site, addresses.shape, kind.itemsize, "store")


def _count(site: Site, shape: tuple[int, ...], size: int, access: str) -> None:
    copies = shape[0]
    sectors = copies * -(-shape[1] * size // SECTOR)
    site.counters.add_bytes(access, copies * shape[1] * size)
    site.counters.add_sectors(access, copies, sectors, sectors)


def _buffers(
    resident: Resident, addresses: Array, wanted: Array | None, size: int, copiers: Copiers, access: str
) -> list[tuple[Buffer, Array]]:
    """Return the buffers that elements lie in, each with a mask of these; report those that lie in none."""
    asked = np.ones(addresses.shape, np.bool_) if wanted is None else wanted
    if not asked.any():
        return []
    memory = resident.memory
    position = memory.locate(addresses, size)
    outside = asked & (position < 0)
    if outside.any():
        thread, element = divmod(int(outside.argmax()), addresses.shape[1])
        place = int(copiers.owners[thread]), int(copiers.columns[thread])
        count, address = int(np.count_nonzero(outside)), int(addresses[thread, element])
        resident.reports.outside_at(address, size, copiers.site, access, place, count)
    found: list[tuple[Buffer, Array]] = []
    for number in np.unique(position[asked & ~outside]):
        buffer, chosen = memory.buffers[int(number)], asked & (position == number)
        if access == "read" or buffer.writable:
            found.append((buffer, chosen))
        else:
            thread = int(chosen.argmax()) // addresses.shape[1]
            place = int(copiers.owners[thread]), int(copiers.columns[thread])
            count = int(np.count_nonzero(chosen))
            resident.reports.read_only_at(buffer, int(addresses[chosen][0]), size, copiers.site, access, place, count)
    return found


def _copiers_of(resident: Resident, chosen: Array, copiers: Copiers) -> tuple[Array, Array]:
    """Return for each of the elements (threads, elements) that are chosen its copier's index, and that one's block."""
    threads = np.nonzero(chosen)[0]
    return threads, resident.geometry.numbers[copiers.owners[threads]]


def _follow(
    resident: Resident,
    buffer: Buffer,
    offsets: Array,
    chosen: Array,
    size: int,
    copiers: Copiers,
    access: str,
    data: Array | None = None,
) -> None:
    """Look for races of global memory with other blocks."""
    if not resident.check:
        return
    shadow = resident.global_shadow
    grains = (offsets[chosen] // shadow.grain)[:, None] + np.arange(max(1, size // shadow.grain))
    threads, blocks = _copiers_of(resident, chosen, copiers)
    blocks = blocks[:, None]
    if access == "atomic":
        conflict = shadow.atomic(buffer, grains, blocks, grains.shape, copiers.site.index)
    elif data is None:
        conflict = shadow.read(buffer, grains, blocks, grains.shape, copiers.site.index, False)
    else:
        changed = buffer.view(data.dtype)[offsets[chosen] // size] != data[chosen]
        where = np.broadcast_to(changed[:, None], grains.shape)
        conflict = shadow.write(buffer, grains, blocks, grains.shape, copiers.site.index, where)
    if conflict is not None:
        element = conflict.position // grains.shape[1]
        thread = int(threads[element])
        place = int(copiers.owners[thread]), int(copiers.columns[thread])
        address = buffer.base + int(offsets[chosen][element])
        resident.reports.global_race_at(buffer, address, conflict, size, copiers.site, access, place)


def sound_shared(resident: Resident, offsets: Array, size: int, align: int, copiers: Copiers, access: str) -> Array:
    """Return the copies whose `size` bytes of shared memory are in bounds and aligned; report the others."""
    outside = (offsets < 0) | (offsets + size > resident.shared_bytes)
    crooked = ~outside & (offsets % align != 0)
    for bad, report in (
        (outside, resident.reports.outside_shared_at),
        (crooked, resident.reports.misaligned_shared_at),
    ):
        if bad.any():
            first = int(bad.argmax())
            place = int(copiers.owners[first]), int(copiers.columns[first])
            width = size if bad is outside else align
            report(int(offsets[first]), width, copiers.site, access, place, int(np.count_nonzero(bad)))
    return ~outside & ~crooked


def write_shared(
    resident: Resident,
    places: Array,
    data: Array,
    copiers: Copiers,
    agent: int,
    clock: Array,
    known: Array,
    change: Change | None = None,
) -> None:
    """Let an agent write elements to shared memory, or update those that are there.

    Args:
        resident: the blocks.
        places: offsets of the elements (threads, elements), whole chunks of `CHUNK` bytes in some order.
        data: the elements.
        copiers: who asked for it.
        agent, clock: see `SharedShadow.by_agent`.
        known: False for elements that nothing has written where they come from.
        change: see `update_global`; None to write.
    """
    size = data.dtype.itemsize
    place_shared(resident, copiers.rows, places, data, change)
    if not resident.check:
        return
    chunks, adds = places[:, :: CHUNK // size] & -CHUNK, change is not None
    shadow = resident.shared_shadow
    conflict = shadow.by_agent(copiers.issue, chunks, CHUNK, agent, clock, copiers.site.index, True, adds=adds)
    if conflict is not None:
        agent_race(resident.reports, chunks, conflict, copiers.site, copiers.owners, copiers.columns, True)
    if not known.all():
        whole = known.reshape(len(known), -1, CHUNK // size).all(axis=2)
        shadow.forget(np.broadcast_to(copiers.rows[:, None], chunks.shape)[~whole], chunks[~whole], CHUNK)


def place_shared(resident: Resident, rows: Array, places: Array, data: Array, change: Change | None) -> None:
    """Write or update elements at offsets (threads, elements) in the shared memory of blocks (threads,)."""
    view = resident.shared_view(data.dtype)
    where = rows[:, None] * view.shape[1] + places // data.dtype.itemsize
    cells = view.reshape(-1)
    if change is None:
        cells[where] = data
    else:
        change(cells, where.reshape(-1), data.reshape(-1))


def read_shared(
    resident: Resident,
    places: Array,
    kind: np.dtype[Any],
    copiers: Copiers,
    agent: int,
    clock: Array,
    home: Array | None = None,
) -> Array:
    """Return elements (threads, elements) of shared memory, which an agent, of the block `home` (threads,), reads."""
    if resident.check:
        chunks = places[:, :: CHUNK // kind.itemsize] & -CHUNK
        shadow = resident.shared_shadow
        unwritten = shadow.untouched(copiers.rows, chunks, CHUNK)
        if unwritten.any():
            thread = int(unwritten.argmax()) // chunks.shape[1]
            place = int(copiers.owners[thread]), int(copiers.columns[thread])
            address, count = int(chunks[unwritten][0]), int(np.count_nonzero(unwritten))
            resident.reports.unwritten_shared_at(address, CHUNK, copiers.site, place, count)
        conflict = shadow.by_agent(copiers.issue, chunks, CHUNK, agent, clock, copiers.site.index, False, home=home)
        if conflict is not None:
            agent_race(resident.reports, chunks, conflict, copiers.site, copiers.owners, copiers.columns, False)
    return resident.shared_view(kind)[copiers.rows[:, None], places // kind.itemsize]
