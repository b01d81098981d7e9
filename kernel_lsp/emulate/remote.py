"""Shared memory of the blocks of a cluster: addresses that name a block, and accesses by them.

Worker-only: imports numpy. A `.shared::cluster` address is the offset in shared memory; above it stands 1 + the rank of
the block, or 0 for the thread's own one. Accesses of other blocks' memory are checked for bounds, alignment, races, and
for the end of that block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import access
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import SHARED_WINDOW, WINDOW_BYTES
from kernel_lsp.emulate.races import Issue

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

RANK_SHIFT = WINDOW_BYTES.bit_length() - 1


@dataclass(frozen=True, slots=True)
class SharedTargets:
    """The places in shared memory that threads name, one for each thread: (threads,).

    Attributes:
        rows: the block whose memory it is.
        owners, columns: the thread.
        addresses: offsets in that memory.
        sound: False where there is no such place; it has been reported.
        lanes: the threads, if all places are sound and in their own blocks.
    """

    rows: Array
    owners: Array
    columns: Array
    addresses: Array
    sound: Array
    lanes: Lanes | None


def shared_targets(
    resident: Resident, space: str, addresses: Array, size: int, lanes: Lanes, site: Site, access_kind: str
) -> SharedTargets:
    """Return the places that threads name by addresses of `shared`, `cluster` or generic ones (with an empty name)."""
    flat = lanes.select(np.broadcast_to(addresses, lanes.shape)).reshape(-1)
    owners, columns = np.divmod(lanes.lane_ids.reshape(-1), lanes.extent[1])
    if space == "":
        flat = flat - SHARED_WINDOW
    ranks, offsets = flat >> RANK_SHIFT, flat & (WINDOW_BYTES - 1)
    count = resident.geometry.cluster_size
    sound = (ranks >= 0) & (ranks <= count) & (offsets + size <= resident.shared_bytes)
    crooked = sound & (offsets % size != 0)
    if not sound.all():
        resident.reports.outside_shared(*_found(~sound, flat, lanes), size, lanes, site, access_kind)
    if crooked.any():
        resident.reports.misaligned(*_found(crooked, flat, lanes), size, lanes, site, access_kind, "shared")
    rows = np.where(sound & (ranks > 0), owners // count * count + ranks - 1, owners)
    gone = sound & (rows != owners) & ~resident.alive[rows].any(axis=1)
    if gone.any():
        resident.reports.ended_block(gone, rows, offsets, size, lanes, site, access_kind)
    sound = sound & ~crooked & ~gone
    own = bool(sound.all()) and bool((rows == owners).all())
    return SharedTargets(rows, owners, columns, offsets, sound, lanes if own else None)


def _found(bad: Array, addresses: Array, lanes: Lanes) -> tuple[Array, Array]:
    """Return addresses and which of them are bad, in the shape of the lanes."""
    if lanes.mask is None:
        return addresses.reshape(lanes.shape), bad.reshape(lanes.shape)
    return lanes.spread(addresses), lanes.spread(bad)


def own_part(resident: Resident, addresses: Array, lanes: Lanes) -> tuple[Lanes | None, Lanes | None]:
    """Return the threads whose `.shared::cluster` address is in their own block, and the others."""
    ranks = addresses >> RANK_SHIFT
    own = (lanes.row_ids % resident.geometry.cluster_size)[:, None] + 1
    return lanes.where((ranks == 0) | (ranks == own))


def load_cluster(
    resident: Resident, addresses: Array, kind: np.dtype[Any], vector: int, lanes: Lanes, site: Site
) -> list[Array]:
    """Return the elements of a vector that each lane loads from the shared memory of a block of its cluster."""
    parts = [np.zeros(lanes.extent, kind) for _ in range(vector)]
    own, others = own_part(resident, addresses, lanes)
    if own is not None:
        at = access.part_of(addresses, lanes, own) & (WINDOW_BYTES - 1)
        for target, value in zip(parts, access.load_shared(resident, at, kind, vector, own, site), strict=True):
            own.write(target, value)
    if others is not None:
        size = kind.itemsize * vector
        at = access.part_of(addresses, lanes, others)
        targets = shared_targets(resident, "cluster", at, size, others, site, "read")
        follow_remote(resident, targets, size, site, "read")
        view = resident.shared_view(kind)
        units = np.where(targets.sound, targets.addresses // kind.itemsize, 0)
        for number, target in enumerate(parts):
            target[targets.owners, targets.columns] = view[targets.rows, units + number]
    return [lanes.read(part) for part in parts]


def store_cluster(resident: Resident, addresses: Array, values: list[Array], lanes: Lanes, site: Site) -> None:
    """Store the elements of a vector to the shared memory of a block of each lane's cluster."""
    own, others = own_part(resident, addresses, lanes)
    if own is not None:
        at = access.part_of(addresses, lanes, own) & (WINDOW_BYTES - 1)
        mine = [access.part_of(np.broadcast_to(value, lanes.shape), lanes, own) for value in values]
        access.store_shared(resident, at, mine, own, site)
    if others is None:
        return
    kind = values[0].dtype
    at = access.part_of(addresses, lanes, others)
    targets = shared_targets(resident, "cluster", at, kind.itemsize * len(values), others, site, "write")
    follow_remote(resident, targets, kind.itemsize * len(values), site, "write")
    view, good = resident.shared_view(kind), targets.sound
    for number, value in enumerate(values):
        mine = access.part_of(np.broadcast_to(value, lanes.shape), lanes, others)
        data = others.select(np.broadcast_to(mine, others.shape)).reshape(-1)[good]
        where = targets.rows[good], targets.addresses[good] // kind.itemsize + number
        resident.progress(view[where], data)
        view[where] = data


def update_places(
    resident: Resident, addresses: Array, size: int, lanes: Lanes, site: Site
) -> list[tuple[Lanes, Array, Array]]:
    """Return the memory that atomic accesses of a cluster's shared memory update, as `access.cells` does."""
    targets = shared_targets(resident, "cluster", addresses, size, lanes, site, "atomic")
    part = Lanes.of(_mask_of(targets, lanes.extent))
    if part is None:
        return []
    follow_remote(resident, targets, size, site, "atomic")
    view = resident.shared_bytes_view(size)
    whole = np.zeros(lanes.extent, np.int64)
    whole[targets.owners, targets.columns] = targets.rows * view.shape[1] + targets.addresses // size
    return [(part, view.reshape(-1), part.select(part.read(whole)))]


def follow_remote(resident: Resident, targets: SharedTargets, size: int, site: Site, access_kind: str) -> None:
    """Look for races of `read`, `write` or `atomic` accesses with those of the blocks whose memory it is."""
    good = targets.sound
    if not resident.check or not good.any():
        return
    issue = Issue(targets.rows[good], targets.owners[good], targets.columns[good])
    writes, strong = access_kind != "read", access_kind == "atomic"
    conflict = resident.shared_shadow.from_afar(
        issue, targets.addresses[good], size, site.index, writes=writes, strong=strong
    )
    if conflict is not None:
        address = int(targets.addresses[good][conflict.position])
        place = int(issue.owners[conflict.position]), int(issue.columns[conflict.position])
        resident.reports.shared_race_at(address, conflict, size, site, access_kind, place)


def _mask_of(targets: SharedTargets, extent: tuple[int, int]) -> Array:
    mask = np.zeros(extent, np.bool_)
    mask[targets.owners[targets.sound], targets.columns[targets.sound]] = True
    return mask
