"""`st.async` and `red.async`: stores to the shared memory of a cluster that report their bytes to an mbarrier there.

Worker-only: imports numpy. The meaning is that of the PTX ISA, "Data Movement and Conversion: st.async" and "Parallel
Synchronization and Communication: red.async". They are not of the async proxy, so that no proxy fence is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.bulk import copiers_of, flat, in_cluster
from kernel_lsp.emulate.bulk_memory import Change, Copiers, place_shared, sound_shared
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import raw_type
from kernel_lsp.emulate.phases import Users
from kernel_lsp.emulate.program import Address, PtxInstruction, Vector
from kernel_lsp.emulate.ptx import type_bytes
from kernel_lsp.emulate.reductions import reduction
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.stage_reports import agent_race
from kernel_lsp.emulate.transfers import locator

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_REPORTS = "mbarrier::complete_tx::bytes"


def bind_remote_stores(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind stores and reductions that report to an mbarrier."""
    parts = instruction.parts
    if parts[0] not in ("st", "red") or "async" not in parts or _REPORTS not in parts:
        return None
    target, value, barrier = instruction.operands
    if not (isinstance(target, Address) and isinstance(barrier, Address)):
        return None
    change = reduction(parts, parts[-1]).change if parts[0] == "red" else None
    kind = raw_type(type_bytes(parts[-1]))
    fetches = [decoder.fetch(each, parts[-1]) for each in (value.items if isinstance(value, Vector) else (value,))]
    to, signal = locator(decoder, target), locator(decoder, barrier)

    def store(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        values = [_each(fetch(resident, activation, lanes), lanes).astype(kind) for fetch in fetches]
        sender = copiers_of(lanes, site)
        rows, offsets = in_cluster(resident, flat(to(resident, activation, lanes), lanes), sender.owners)
        _, signals = in_cluster(resident, flat(signal(resident, activation, lanes), lanes), sender.owners)
        copiers, size = Copiers(rows, sender.owners, sender.columns, site), kind.itemsize * len(values)
        sound = sound_shared(resident, offsets, size, size, copiers, "write") & (rows >= 0)
        places = offsets[:, None] + np.arange(0, size, kind.itemsize)
        for address in np.unique(signals[sound]):
            at = np.flatnonzero(sound & (signals == address))
            _arrive(resident, int(address), copiers.part(at), places[at], np.stack(values, 1)[at], change)

    return store


def _each(value: Array, lanes: Lanes) -> Array:
    """Return a value of some threads as one element for each of them."""
    return lanes.select(np.broadcast_to(value, lanes.shape)).reshape(-1)


def _arrive(
    resident: Resident, address: int, copiers: Copiers, places: Array, data: Array, change: Change | None
) -> None:
    """Write or `change` elements (threads, elements), and report their bytes to the mbarrier at an address."""
    phases, everyone = resident.phases, np.arange(len(copiers.rows))
    barrier = phases.at(address)
    users = Users(copiers.rows, copiers.owners, copiers.columns, everyone)
    live = phases.usable(barrier, users, copiers.site).positions
    copiers, places, data = copiers.part(live), places[live], data[live]
    if not len(live):
        return
    place_shared(resident, copiers.rows, places, data, change)
    agent, clock, size = phases.agent(barrier), barrier.completed[copiers.rows] + 1, data.dtype.itemsize
    if resident.check:
        conflict = resident.shared_shadow.by_agent(
            copiers.issue,
            places,
            size,
            agent,
            clock,
            copiers.site.index,
            True,
            fenced=False,
            adds=change is not None,
        )
        if conflict is not None:
            agent_race(resident.reports, places, conflict, copiers.site, copiers.owners, copiers.columns, True)
    phases.bring(barrier, copiers.rows, np.full(len(live), size * data.shape[1]), copiers.site)
