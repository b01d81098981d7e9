"""Blocks that are resident together: their threads, shared and local memory, and waiting threads.

Worker-only: imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import counters
from kernel_lsp.emulate.access import LocalMemory
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.errors import EmulatorFault, Unfinished
from kernel_lsp.emulate.lanes import WARP, Lanes
from kernel_lsp.emulate.memory import Buffer, GlobalMemory, Unwritten, raw_type
from kernel_lsp.emulate.races import GlobalShadow, SharedShadow
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.reports import Reports
from kernel_lsp.emulate.rings import RingTally
from kernel_lsp.emulate.special import Geometry, Moment, changing
from kernel_lsp.emulate.stage_reports import before_copy
from kernel_lsp.emulate.taint import Origin

if TYPE_CHECKING:
    from kernel_lsp.emulate.barriers import Barriers
    from kernel_lsp.emulate.bulk import BulkGroups
    from kernel_lsp.emulate.clusters import ClusterBarriers
    from kernel_lsp.emulate.copies import Copies
    from kernel_lsp.emulate.phases import PhaseBarriers
    from kernel_lsp.emulate.swizzles import Swizzles
    from kernel_lsp.emulate.waits import PhaseWaits
    from kernel_lsp.emulate.wgmma import MatrixGroups

Array: TypeAlias = NDArray[Any]

_GRAIN = 16


@dataclass(slots=True)
class ChangeCount:
    """Counts changes by threads that others may be waiting for."""

    count: int = 0


@dataclass(frozen=True)
class LaunchState:
    """The state shared by all blocks of a launch.

    Attributes:
        memory: global memory.
        symbols: address of each variable of the module: in global memory, or in the shared memory of a block; of a
            device function its number.
        parameters: the parameter block, in global memory too, as its address may be taken.
        offsets: of the parameters in it.
        sites: all instructions of the program.
        global_shadow: last accesses to each byte of global memory.
        check: True if accesses are checked for races and uninitialised reads, and counted.
        shared_grain: bytes of shared memory that are tracked together.
        environment: values of %envreg registers.
        changes: made by any of its threads.
        waits: True if threads may wait in loops for changes by others.
        unwritten: treatment of global memory that is not known to be written.
        moment: number of the launch, and its clocks.
        rings: what the phases of mbarriers have brought.
    """

    memory: GlobalMemory
    symbols: dict[str, int]
    parameters: Buffer
    offsets: dict[str, int]
    sites: list[Site]
    global_shadow: GlobalShadow
    check: bool
    shared_grain: int
    environment: dict[str, int]
    changes: ChangeCount
    waits: bool
    unwritten: Unwritten
    moment: Moment
    rings: RingTally = field(default_factory=RingTally)


class Resident:
    """The state of some blocks of a launch that run together."""

    def __init__(self, launch: LaunchState, geometry: Geometry, reports: Reports) -> None:
        self.launch, self.geometry, self.reports = launch, geometry, reports
        self.memory, self.check, self.global_shadow = launch.memory, launch.check, launch.global_shadow
        self.extent = geometry.extent
        self.everyone = Lanes.all(self.extent)
        self.alive = np.ones(self.extent, np.bool_)
        self.living = self.extent[0] * self.extent[1]
        self._working = _by_warp(self.alive)
        self.shared_bytes = geometry.shared_bytes
        size = -(-max(self.shared_bytes, 1) // _GRAIN) * _GRAIN
        self._shared = np.zeros((self.extent[0], size), np.uint8)
        self._shared_views: dict[np.dtype[Any], Array] = {}
        self.shared_shadow = SharedShadow(
            self.extent[0], size, launch.shared_grain, self.extent[1], geometry.cluster_size
        )
        self.local = LocalMemory(self.living)
        environment = {name: np.full((1, 1), value, np.uint32) for name, value in launch.environment.items()}
        self._special = geometry.registers() | environment
        self.last_buffer: Buffer | None = None
        self.steps = 0
        self.forced = False  # True if a group that waits for others must continue without them
        # Unwritten bytes met by the load just executed: unknown bits of its results, their lanes, their origin.
        self.missing: list[tuple[list[Array], Lanes, Origin]] = []
        self._unwritten_shared: list[Callable[[], None]] = []
        self.barriers: Barriers
        self.bulk_groups: BulkGroups
        self.cluster_barriers: ClusterBarriers
        self.copies: Copies
        self.matrix_groups: MatrixGroups
        self.phases: PhaseBarriers
        self.phase_waits: PhaseWaits
        self.swizzles: Swizzles

    def special(self, name: str) -> Array:
        """Return a special register, for all threads."""
        found = self._special.get(name)
        return changing(name, self.launch.moment, self.steps) if found is None else found

    def address_of(self, symbol: str, activation: Activation) -> int:
        """Return the address of a variable, in the window of its space."""
        local = activation.function.locals.get(symbol)
        if local is not None:
            return activation.local_base + local
        known = self.launch.symbols.get(symbol)
        if known is None and symbol in self.launch.offsets:
            known = self.launch.parameters.address + self.launch.offsets[symbol]
        if known is None:
            raise EmulatorFault(f"the PTX does not define `{symbol}`.")
        return known

    def shared_view(self, kind: np.dtype[Any]) -> Array:
        """Return shared memory as (blocks, elements) of a type."""
        found = self._shared_views.get(kind)
        if found is None:
            found = self._shared_views[kind] = self._shared.view(kind)
        return found

    def shared_bytes_view(self, size: int) -> Array:
        """Return shared memory as unsigned integers of `size` bytes."""
        return self.shared_view(raw_type(size))

    def blocks_of(self, lanes: Lanes, shape: tuple[int, ...]) -> Array:
        """Return linear block numbers of elements of `shape`, as `Lanes.select` returns, with an axis for their
        parts.
        """
        if lanes.mask is not None and len(shape) == 1:
            return self.geometry.numbers[lanes.lane_ids // self.extent[1]][:, None]
        return self.geometry.numbers[lanes.row_ids][:, None, None]

    def are_all(self, lanes: Lanes) -> bool:
        """Return True if these are all living threads of their blocks."""
        return lanes.full or int(np.count_nonzero(self.alive[lanes.rows])) == lanes.count

    def progress(self, before: Array, after: Array) -> None:
        """Record that memory changes that threads may be waiting for."""
        if (before != after).any():
            self.launch.changes.count += 1

    def missed(
        self, bits: list[Array], addresses: Array, lanes: Lanes, size: int, site: Site, buffer: Buffer | None
    ) -> None:
        """Record unwritten bytes of a buffer or of shared memory in a load: unknown bits of each element, as
        selected.
        """
        places = np.zeros(self.extent, np.int64)
        lanes.write(places, lanes.spread(addresses))
        spread = [lanes.spread(each) for each in bits]
        threads = np.zeros(self.extent, np.bool_)
        for each in spread:
            lanes.write(threads, lanes.read(threads) | (each != 0))
        everyone, reports, policy = self.everyone, self.reports, self.launch.unwritten

        def report(used: Array) -> None:
            if buffer is None:
                self._unwritten_shared.append(lambda: self._settle(places, used, size, site))
            elif policy is Unwritten.UNKNOWN:
                raise Unfinished
            else:
                reports.unwritten(buffer, places, used, size, everyone, site)

        self.missing.append((spread, lanes, Origin(threads, report)))

    def settle(self) -> None:
        """Report uses of unwritten shared memory, once all threads have ended: copies may have come too late."""
        for report in self._unwritten_shared:
            report()
        self._unwritten_shared.clear()

    def _settle(self, places: Array, used: Array, size: int, site: Site) -> None:
        row, column = np.unravel_index(int(used.argmax()), used.shape)
        address = int(np.broadcast_to(places, used.shape)[row, column])
        copy = self.shared_shadow.copied_since(int(row), address)
        if copy is None:
            self.reports.unwritten_shared(places, used, size, self.everyone, site)
        else:
            thread = int(row), int(column)
            before_copy(self.reports, address, copy, size, site, thread, int(np.count_nonzero(used)))

    def leave(self, lanes: Lanes) -> None:
        """Remove these threads, which have exited."""
        self.living -= lanes.count
        if lanes.full:
            self.alive[...] = False
        else:
            lanes.write(self.alive, np.zeros((1, 1), np.bool_))
        self.launch.changes.count += 1

    def turn_away(self, lanes: Lanes) -> None:
        """Remove these threads, which have exited without any access of memory: they have no work."""
        self.leave(lanes)
        self._working = self._working - _by_warp(lanes.to_mask())

    def working(self, lanes: Lanes) -> int:
        """Return how many threads of these threads' warps have work, alive or not."""
        return lanes.total_of_warps(self._working)

    def count_global(self, addresses: Array, size: int, lanes: Lanes, site: Site, access: str) -> None:
        """Count a load from or a store to global memory."""
        site.counters.add_bytes(access, size * lanes.count)
        if self.check:
            site.counters.add_sectors(access, *counters.sectors(addresses, size, lanes))

    def count_shared(self, addresses: Array, size: int, lanes: Lanes, site: Site, access: str) -> None:
        """Count a load from or a store to shared memory."""
        if not self.check:
            return
        count = site.counters
        requests, wavefronts, conflicts = counters.wavefronts(addresses, size, lanes)
        if access == "load":
            count.shared_load_requests += requests
            count.shared_load_wavefronts += wavefronts
            count.shared_load_conflicts += conflicts
        else:
            count.shared_store_requests += requests
            count.shared_store_wavefronts += wavefronts
            count.shared_store_conflicts += conflicts


def _by_warp(threads: Array) -> Array:
    """Return how many threads of (blocks, threads) are set, (blocks, warps of a block)."""
    return np.add.reduceat(threads, range(0, threads.shape[1], WARP), axis=1, dtype=np.int64)
