"""Clusters: the barrier of a cluster's threads, and addresses in the shared memory of its blocks.

Worker-only: imports numpy. The blocks of a cluster are always resident together, in neighbouring rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step, Successors
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import SHARED_WINDOW, WINDOW_BYTES
from kernel_lsp.emulate.program import PtxInstruction
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.remote import RANK_SHIFT

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]


@dataclass(slots=True)
class _Waiting:
    activation: Activation
    following: int
    lanes: Lanes
    site: Site


class ClusterBarriers:
    """The barrier of each resident cluster: threads arrive, and later wait until all others have."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        blocks = resident.extent[0]
        self._arrived = np.zeros(resident.extent, np.bool_)
        self._absent = np.zeros(blocks, np.bool_)  # blocks that have been reported
        self._generation = np.zeros((blocks, 1), np.int64)  # barriers completed by each block's cluster
        self._awaits = np.zeros(resident.extent, np.int64)  # the generation that each thread's last arrival is part of
        self._given = self._done = resident.shared_shadow.clocks.nothing()
        self._waiting: list[_Waiting] = []
        self._site: Site | None = None

    def __bool__(self) -> bool:
        """Return True if any thread waits."""
        return bool(self._waiting)

    def arrive(self, lanes: Lanes, site: Site, releases: bool) -> Successors:
        """Let threads arrive, with what they did if it `releases` that; return others that can go on now."""
        resident = self._resident
        self._site = site
        mask = lanes.to_mask()
        self._arrived |= mask
        self._awaits[mask] = np.broadcast_to(self._generation + 1, mask.shape)[mask]
        if resident.check:
            clocks = resident.shared_shadow.clocks
            if releases:
                self._given = clocks.give(self._given, clocks.pairs(lanes))
                resident.global_shadow.fence(np.unique(resident.geometry.numbers[lanes.row_ids]))
            else:  # only what fences have released
                self._given = clocks.released(self._given, np.unique(lanes.row_ids))
        return self.release()

    def wait(self, activation: Activation, following: int, lanes: Lanes, site: Site) -> Successors | None:
        """Suspend threads whose barrier is not complete; return where the others go, or None if those are all."""
        passing, waiting = lanes.where(lanes.read(self._awaits) <= lanes.read(self._generation))
        if passing is not None and self._resident.check:
            clocks = self._resident.shared_shadow.clocks
            clocks.take(self._done, clocks.pairs(passing))
            self._resident.global_shadow.look(np.unique(self._resident.geometry.numbers[passing.row_ids]))
        if waiting is None:
            return None
        self._waiting.append(_Waiting(activation, following, waiting, site))
        return [] if passing is None else [(activation, following, passing, False)]

    def release(self) -> Successors:
        """Complete barriers at which all living threads have arrived; return the threads that waited for them."""
        arrived, alive = self._by_cluster(self._arrived), self._by_cluster(self._resident.alive)
        complete = arrived.any(axis=1) & ~(alive & ~arrived).any(axis=1)
        if not complete.any():
            return []
        rows = np.repeat(complete, self._resident.geometry.cluster_size)
        # Warps may exit, and are not waited for; but no memory outlives its block.
        absent = rows & ~self._arrived.any(axis=1) & ~self._absent
        self._absent |= absent
        missing = Lanes.of(np.repeat(absent[:, None], self._arrived.shape[1], axis=1))
        if missing is not None and self._site is not None:
            message = "{who} ends without the barrier at which other threads of its cluster wait"
            self._resident.reports.about_lanes(FindingKind.DIVERGENT_BARRIER, self._site, message, missing)
        self._arrived[rows] = False
        self._generation[rows] += 1
        clocks = self._resident.shared_shadow.clocks
        self._given, self._done = clocks.fitted(self._given), clocks.fitted(self._done).copy()
        self._done[:, rows] = clocks.of_clusters(self._given)[:, rows]
        self._resident.launch.changes.count += 1
        going: Successors = []
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            gone = self.wait(each.activation, each.following, each.lanes, each.site)
            going += [(each.activation, each.following, each.lanes, False)] if gone is None else gone
        return going

    def give_up(self) -> None:
        """Report and end the waiting threads, since no other can arrive any more."""
        for each in self._waiting:
            message = "{who} waits at the barrier of its cluster for threads that never come"
            self._resident.reports.about_lanes(FindingKind.DEADLOCK, each.site, message, each.lanes)
            self._resident.leave(each.lanes)
        self._waiting.clear()

    def _by_cluster(self, mask: Array) -> Array:
        """Return a view of a mask of the extent with all threads of a cluster in one row."""
        return mask.reshape(len(mask) // self._resident.geometry.cluster_size, -1)


def bind_clusters(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind `barrier.cluster`, `mapa` and `getctarank`."""
    parts = instruction.parts
    if parts[:2] == ("barrier", "cluster"):
        if parts[2] == "arrive":
            following, releases = decoder.position + 1, "relaxed" not in parts

            def arrive(resident: Resident, activation: Activation, lanes: Lanes) -> Successors | None:
                gone = resident.cluster_barriers.arrive(lanes, site, releases)
                return [*gone, (activation, following, lanes, False)] if gone else None

            return arrive
        return _bind_wait(decoder, site) if parts[2] == "wait" else None
    if parts[0] == "mapa":
        return _bind_mapa(decoder, instruction)
    if parts[0] == "getctarank":
        return _bind_rank(decoder, instruction)
    return None


def _bind_wait(decoder: Decoder, site: Site) -> Step:
    following = decoder.position + 1

    def wait(resident: Resident, activation: Activation, lanes: Lanes) -> Successors | None:
        return resident.cluster_barriers.wait(activation, following, lanes, site)

    return wait


def _bind_mapa(decoder: Decoder, instruction: PtxInstruction) -> Step:
    """Bind `mapa`: the address of the same place in the shared memory of the block with a given rank."""
    kind, generic = instruction.parts[-1], "shared::cluster" not in instruction.parts
    target, source, rank = instruction.operands
    fetch, fetch_rank, store = decoder.fetch(source, kind), decoder.fetch(rank, "u32"), decoder.store(target)
    window = np.uint64(SHARED_WINDOW if generic else 0)

    def map_address(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        offset = fetch(resident, activation, lanes).astype(np.uint64) & np.uint64(WINDOW_BYTES - 1)
        block = fetch_rank(resident, activation, lanes).astype(np.uint64) + np.uint64(1)
        value = window + (block << np.uint64(RANK_SHIFT)) + offset
        store(activation, value if kind == "u64" else value.astype(np.uint32), lanes)

    return map_address


def _bind_rank(decoder: Decoder, instruction: PtxInstruction) -> Step:
    """Bind `getctarank`: the rank of the block in whose shared memory an address lies."""
    kind, generic = instruction.parts[-1], "shared::cluster" not in instruction.parts
    target, source = instruction.operands
    fetch, store = decoder.fetch(source, kind), decoder.store(target)
    window = np.uint64(SHARED_WINDOW if generic else 0)

    def rank(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        code = (fetch(resident, activation, lanes).astype(np.uint64) - window) >> np.uint64(RANK_SHIFT)
        own = lanes.read(resident.special("%cluster_ctarank"))
        store(activation, np.where(code == 0, own, code.astype(np.uint32) - np.uint32(1)), lanes)

    return rank
