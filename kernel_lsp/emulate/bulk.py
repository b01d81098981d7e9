"""`cp.async.bulk`: copies of many bytes that one thread starts, between global and shared memory.

Worker-only: imports numpy. The meaning is that of the PTX ISA, "Data Movement and Conversion: cp.async.bulk". A copy to
shared memory reports its bytes to an mbarrier; one to global memory belongs to a group of its thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.bulk_memory import (
    CHUNK,
    Change,
    Copiers,
    read_global,
    read_shared,
    sound_shared,
    update_global,
    write_global,
    write_shared,
)
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import WARP, Lanes
from kernel_lsp.emulate.memory import SHARED_WINDOW, WINDOW_BYTES
from kernel_lsp.emulate.phases import Users
from kernel_lsp.emulate.program import Address, Immediate, Operand, PtxInstruction
from kernel_lsp.emulate.reductions import is_reduction, plain, reduction
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.remote import RANK_SHIFT
from kernel_lsp.emulate.transfers import Locate, locator

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_WORD = np.dtype("<u8")


class BulkGroups:
    """The groups of bulk copies that each resident thread has closed, and the agents that carry them out."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._committed = np.zeros(resident.extent, np.int64)
        self._agents: dict[int, int] = {}  # by column
        self._waited = np.zeros(resident.extent, np.int64)
        self._last: dict[int, tuple[Site, Array]] = {}  # by column: the last copy, and the group that it is part of

    def start(self, copiers: Copiers, thread: int) -> tuple[int, Array]:
        """Return agent and clock of a copy in the open group of the thread `thread` of each block."""
        if thread not in self._agents:
            self._agents[thread] = self._resident.shared_shadow.clocks.agent()
            self._last[thread] = (copiers.site, np.zeros(len(self._committed), np.int64))
        clock = self._committed[copiers.owners, thread] + 1
        last = self._last[thread][1]
        last[copiers.owners] = clock
        self._last[thread] = (copiers.site, last)
        return self._agents[thread], clock

    def commit(self, lanes: Lanes) -> None:
        """Close the groups of these threads."""
        self._committed[lanes.to_mask()] += 1

    def wait(self, pending: int, lanes: Lanes) -> None:
        """Wait for all groups of these threads but the last `pending`."""
        mask, clocks = lanes.to_mask(), self._resident.shared_shadow.clocks
        self._waited[mask] = np.maximum(self._waited, self._committed - pending)[mask]
        for column, agent in self._agents.items():
            rows = np.flatnonzero(mask[:, column])
            if len(rows):
                clocks.expand()
                clocks.learn(agent, (rows, np.full(len(rows), column // WARP)), self._waited[rows, column])

    def finish(self) -> None:
        """Report copies out of shared memory that nobody waited for before the block ended."""
        for column, (site, last) in self._last.items():
            rows = np.flatnonzero(last > self._waited[:, column])
            if len(rows):
                message = "{who} ends, and its block with it, while the copy that it starts here may still read"
                kind, row = FindingKind.UNAWAITED_COPY, int(rows[0])
                self._resident.reports.say(kind, site, f"{message} shared memory", row, column, count=len(rows))


def bind_bulk(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind bulk copies without tensors, and the groups of all bulk copies."""
    parts = plain(instruction.parts)
    if parts[:3] != ("cp", "async", "bulk") or "tensor" in parts:
        return None
    if parts[3] == "commit_group":
        return lambda resident, _, lanes: resident.bulk_groups.commit(lanes)
    if parts[3] == "wait_group":
        (pending,) = instruction.operands
        assert isinstance(pending, Immediate)
        return lambda resident, _, lanes: resident.bulk_groups.wait(pending.bits, lanes)
    if parts[3] == "prefetch":
        return lambda _r, _a, _l: None
    if "bulk_group" in parts and parts[3] == "global":
        return _bind_out(decoder, instruction, site)
    if parts[3] in ("shared::cluster", "shared::cta") and parts[4] in ("global", "shared::cta"):
        return _bind_in(decoder, instruction, site)
    return None


def flat(value: Array, lanes: Lanes) -> Array:
    """Return a value of some threads as one int64 for each of them."""
    return lanes.select(np.broadcast_to(value, lanes.shape)).reshape(-1).astype(np.int64)


def copiers_of(lanes: Lanes, site: Site) -> Copiers:
    """Return the threads, which copy to or from their own blocks' shared memory."""
    owners, columns = np.divmod(lanes.lane_ids.reshape(-1), lanes.extent[1])
    return Copiers(owners, owners, columns, site)


def in_cluster(resident: Resident, addresses: Array, owners: Array) -> tuple[Array, Array]:
    """Return the blocks' rows and the offsets that `.shared::cluster` addresses name; row -1 for no block."""
    addresses = np.where(addresses >= SHARED_WINDOW, addresses - SHARED_WINDOW, addresses)
    ranks, size = addresses >> RANK_SHIFT, resident.geometry.cluster_size
    rows = np.where(ranks > 0, owners // size * size + ranks - 1, owners)
    return np.where((ranks < 0) | (ranks > size), -1, rows), addresses & (WINDOW_BYTES - 1)


class Delivery:
    """Where copies into shared memory go, and the mbarriers that they report to: the operands of an instruction."""

    def __init__(
        self,
        decoder: Decoder,
        instruction: PtxInstruction,
        site: Site,
        target: Operand,
        barrier: Operand,
        extra: list[Operand],
    ) -> None:
        assert isinstance(target, Address)
        assert isinstance(barrier, Address)
        parts = instruction.parts
        self._site = site
        self._target: Locate = locator(decoder, target)
        self._barrier: Locate = locator(decoder, barrier)
        self._mask = decoder.fetch(extra[0], "u16") if "multicast::cluster" in parts else None

    def each(
        self, resident: Resident, activation: Activation, lanes: Lanes
    ) -> list[tuple[Copiers, Array, Array, Array]]:
        """Return for each block that receives: who copies, offsets there and of the mbarrier, threads' positions."""
        copiers = copiers_of(lanes, self._site)
        rows, offsets = in_cluster(resident, flat(self._target(resident, activation, lanes), lanes), copiers.owners)
        _, barriers = in_cluster(resident, flat(self._barrier(resident, activation, lanes), lanes), copiers.owners)
        everyone = np.arange(len(rows))
        if self._mask is None:
            return [(Copiers(rows, copiers.owners, copiers.columns, self._site), offsets, barriers, everyone)]
        size = resident.geometry.cluster_size
        masks = flat(self._mask(resident, activation, lanes), lanes)
        found: list[tuple[Copiers, Array, Array, Array]] = []
        for rank in range(size):
            chosen = np.flatnonzero(masks >> rank & 1)
            if len(chosen):
                part = copiers.part(chosen)
                there = Copiers(part.owners // size * size + rank, part.owners, part.columns, self._site)
                found.append((there, offsets[chosen], barriers[chosen], chosen))
        return found


def deliver(
    resident: Resident,
    copiers: Copiers,
    barriers: Array,
    places: Array,
    data: Array,
    known: Array,
    amount: int,
    change: Change | None = None,
) -> None:
    """Write or `change` elements (threads, elements) of shared memory; report `amount` bytes of each to mbarriers."""
    phases = resident.phases
    for address in np.unique(barriers):
        at = np.flatnonzero(barriers == address)
        mine, barrier = copiers.part(at), phases.at(int(address))
        users = phases.usable(barrier, Users(mine.rows, mine.owners, mine.columns, np.arange(len(at))), mine.site)
        live = users.positions
        mine, at = mine.part(live), at[live]
        if len(at):
            agent = phases.agent(barrier)
            clock = barrier.completed[mine.rows] + 1
            write_shared(resident, places[at], data[at], mine, agent, clock, known[at], change)
            phases.bring(barrier, mine.rows, np.full(len(at), amount), mine.site)


def _bind_in(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    """Bind copies into shared memory, from global memory or from the thread's own shared memory.

    The latter may reduce.
    """
    target, source, size, barrier, *extra = instruction.operands
    assert isinstance(source, Address)
    delivery = Delivery(decoder, instruction, site, target, barrier, extra)
    origin, fetch = locator(decoder, source), decoder.fetch(size, "u32")
    shared = plain(instruction.parts)[4] == "shared::cta"
    reduces = reduction(instruction.parts, instruction.parts[-1]) if is_reduction(instruction.parts) else None
    kind, change = (reduces.kind, reduces.change) if reduces else (_WORD, None)

    def copy(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        sizes, sources = (
            flat(fetch(resident, activation, lanes), lanes),
            flat(origin(resident, activation, lanes), lanes),
        )
        for copiers, offsets, barriers, threads in delivery.each(resident, activation, lanes):
            for amount in np.unique(sizes[threads]):
                same = np.flatnonzero(sizes[threads] == amount)
                part, at, chosen = copiers.part(same), offsets[same], threads[same]
                sound = _sound(resident, at, sources[chosen], int(amount), part, "write")
                part, at, chosen, signals = part.part(sound), at[sound], chosen[sound], barriers[same][sound]
                if len(chosen):
                    steps = np.arange(0, amount, kind.itemsize)
                    origins = sources[chosen][:, None] + steps
                    if shared:
                        data = _read_own(resident, origins & (WINDOW_BYTES - 1), kind, part, signals)
                        known = np.ones(data.shape, np.bool_)
                    else:
                        data, unwritten = read_global(resident, origins, None, kind, part)
                        known = ~unwritten
                    deliver(resident, part, signals, at[:, None] + steps, data, known, int(amount), change)

    return copy


def _read_own(resident: Resident, places: Array, kind: np.dtype[Any], copiers: Copiers, signals: Array) -> Array:
    """Return elements of the threads' own shared memory, read until the phases of the mbarriers at `signals` end."""
    source = Copiers(copiers.owners, copiers.owners, copiers.columns, copiers.site)
    sound = sound_shared(resident, places[:, -1], kind.itemsize, kind.itemsize, source, "read")
    data, phases = np.zeros(places.shape, kind), resident.phases
    for address in np.unique(signals):
        at, barrier = np.flatnonzero((signals == address) & sound), phases.at(int(address))
        if len(at):
            home, agent = copiers.rows[at], phases.agent(barrier)
            clock = barrier.completed[home] + 1
            data[at] = read_shared(resident, places[at], kind, source.part(at), agent, clock, home)
    return data


def _sound(
    resident: Resident, offsets: Array, addresses: Array, amount: int, copiers: Copiers, access: str
) -> NDArray[np.intp]:
    """Return the positions of copies whose places are aligned, and in bounds in shared memory; report the others."""
    if amount % CHUNK:
        row, column = int(copiers.owners[0]), int(copiers.columns[0])
        message = f"{{who}} copies {amount:,} bytes at once, which is not a multiple of {CHUNK}"
        resident.reports.say(FindingKind.MISALIGNED, copiers.site, message, row, column, access=access)
        return np.zeros(0, np.intp)
    sound = sound_shared(resident, offsets, amount, CHUNK, copiers, access) & (copiers.rows >= 0)
    crooked = np.flatnonzero(sound & (addresses % CHUNK != 0))
    if len(crooked):
        row, column = int(copiers.owners[crooked[0]]), int(copiers.columns[crooked[0]])
        address, beyond = int(addresses[crooked[0]]), "read" if access == "write" else "write"
        place, count = (row, column), len(crooked)
        resident.reports.misaligned_at(address, amount, CHUNK, copiers.site, beyond, place, count)
    return np.flatnonzero(sound & (addresses % CHUNK == 0))


def _bind_out(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    """Bind copies from shared to global memory, those that reduce too."""
    target, source, size, *_ = instruction.operands
    reduces = reduction(instruction.parts, instruction.parts[-1]) if is_reduction(instruction.parts) else None
    kind = reduces.kind if reduces else _WORD
    if "cp_mask" in instruction.parts or not (isinstance(target, Address) and isinstance(source, Address)):
        raise NeedsGpu(f"`{instruction.opcode}`")
    to, origin, fetch = locator(decoder, target), locator(decoder, source), decoder.fetch(size, "u32")

    def copy(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        copiers = copiers_of(lanes, site)
        sizes = flat(fetch(resident, activation, lanes), lanes)
        targets, sources = (flat(locate(resident, activation, lanes), lanes) for locate in (to, origin))
        sources = sources & (WINDOW_BYTES - 1)
        for amount, column in {(int(a), int(c)) for a, c in zip(sizes, copiers.columns, strict=True)}:
            at = np.flatnonzero((sizes == amount) & (copiers.columns == column))
            part = copiers.part(at)
            sound = _sound(resident, sources[at], targets[at], amount, part, "read")
            if not len(sound):
                continue
            part, at, steps = part.part(sound), at[sound], np.arange(0, amount, kind.itemsize)
            agent, clock = resident.bulk_groups.start(part, column)
            data = read_shared(resident, sources[at][:, None] + steps, kind, part, agent, clock)
            if reduces:
                update_global(resident, targets[at][:, None] + steps, None, data, part, reduces.change)
            else:
                write_global(resident, targets[at][:, None] + steps, None, data, part)

    return copy
