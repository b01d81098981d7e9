"""Keeps the state of `mbarrier` objects: phases that end when all arrivals and bytes have come.

Worker-only: imports numpy. The meaning is that of the PTX ISA, "Parallel Synchronization and Communication:
mbarrier". A phase is complete as soon as no arrival and no byte is pending, and the next one begins with the expected
count of arrivals. The object itself is opaque: its bytes in shared memory are not used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.findings import FindingKind

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_COUNT_BITS = 20  # of a state, which tell the pending arrivals; the others tell the phase
_COUNT = (1 << _COUNT_BITS) - 1


@dataclass(frozen=True, slots=True)
class Users:
    """Threads that use one mbarrier together, (threads,) each.

    Attributes:
        rows: the block in whose shared memory it lies.
        owners: the thread's own block, which differs only in a cluster.
        columns: the thread.
        positions: of these threads among all that execute the instruction.
    """

    rows: Array
    owners: Array
    columns: Array
    positions: Array

    def part(self, chosen: Array) -> Users:
        """Return the threads that a mask selects."""
        return Users(self.rows[chosen], self.owners[chosen], self.columns[chosen], self.positions[chosen])


@dataclass(eq=False)
class PhaseBarrier:
    """The mbarrier at one address of all resident blocks; arrays have an element for each block.

    Attributes:
        address: in shared memory.
        live: true from `init` to `inval`.
        expected: arrivals of a phase.
        pending: those that are missing in this phase.
        missing_bytes: announced by `expect_tx` and not yet brought; negative if copies brought more.
        phase: number of the present phase, since `init`.
        completed: phases ever completed: the clock of the agent that copies for this barrier.
        announced: bytes announced in this phase.
        announcer: the instruction that announced bytes last; None if there was none.
        agent: its column in the clocks; None if there are no copies.
        given: what arrivals of this phase know.
        done: what a thread knows that has seen the last phase end.
        arrivals, announcements, copies: the instructions that did so, with the last (row, column) that executed them.
    """

    address: int
    live: Array
    expected: Array
    pending: Array
    missing_bytes: Array
    phase: Array
    completed: Array
    announced: Array
    given: Array
    done: Array
    announcer: Site | None = None
    agent: int | None = None
    arrivals: dict[int, tuple[Site, int, int]] = field(default_factory=dict[int, tuple[Site, int, int]])
    announcements: dict[int, Site] = field(default_factory=dict[int, Site])
    copies: dict[int, Site] = field(default_factory=dict[int, Site])


class PhaseBarriers:
    """The mbarriers of the resident blocks, by address.

    Attributes:
        changes: counts all changes of their state.
    """

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._at: dict[int, PhaseBarrier] = {}
        self.changes = 0

    def __iter__(self) -> Any:
        return iter(self._at.values())

    def at(self, address: int) -> PhaseBarrier:
        """Return the barrier at an address."""
        found = self._at.get(address)
        if found is None:
            live = np.zeros(self._resident.extent[0], np.bool_)
            counts = np.zeros((6, len(live)), np.int64)
            given, done = (self._resident.shared_shadow.clocks.nothing() for _ in range(2))
            found = PhaseBarrier(
                address, live, counts[0], counts[1], counts[2], counts[3], counts[4], counts[5], given, done
            )
            self._at[address] = found
        return found

    def init(self, barrier: PhaseBarrier, users: Users, counts: Array) -> None:
        """Begin phase 0 with a count of expected arrivals for each thread's block."""
        rows = users.rows
        barrier.live[rows] = True
        barrier.expected[rows] = barrier.pending[rows] = counts
        barrier.missing_bytes[rows] = barrier.announced[rows] = barrier.phase[rows] = 0
        barrier.completed[rows] += 1  # copies for an earlier barrier here were waited for, or never will be
        self._changed()

    def invalidate(self, barrier: PhaseBarrier, users: Users) -> None:
        """End the life of the barrier."""
        barrier.live[users.rows] = False
        barrier.missing_bytes[users.rows] = 0
        self._changed()

    def usable(self, barrier: PhaseBarrier, users: Users, site: Site) -> Users:
        """Return the threads whose barrier is initialised; report the others."""
        live = barrier.live[users.rows]
        if not live.all():
            first = users.part(~live)
            message = f"{{who}} uses byte {barrier.address:,} of shared memory as an mbarrier, which is not initialised"
            self._say(FindingKind.MISUSED_MBARRIER, site, message, first)
            users = users.part(live)
        return users

    def arrive(self, barrier: PhaseBarrier, users: Users, counts: Array, site: Site, drop: bool = False) -> Array:
        """Let threads arrive, in their order; return the state that each sees before its arrival."""
        rows = users.rows
        if not len(rows):
            return np.zeros(0, np.uint64)
        barrier.arrivals[site.index] = (site, int(users.owners[-1]), int(users.columns[-1]))
        totals = np.bincount(rows, counts, len(barrier.live)).astype(np.int64)
        if (totals > barrier.pending).any() and len(rows) > 1:
            each = (np.arange(len(rows)) == number for number in range(len(rows)))
            return np.concatenate([self.arrive(barrier, users.part(one), counts[one], site, drop) for one in each])
        self._give(barrier, users)
        excess = totals > barrier.pending
        if excess.any():
            kind, count = FindingKind.MISUSED_MBARRIER, int(barrier.expected[rows[0]])
            message = f"{{who}} arrives at the mbarrier at byte {barrier.address:,}, which has its {count:,} arrivals"
            self._say(kind, site, message, users)
            totals = np.minimum(totals, barrier.pending)
        order = np.argsort(rows, kind="stable")
        sums = np.cumsum(counts[order]) - counts[order]
        starts = np.searchsorted(rows[order], rows[order])
        before = np.empty(len(rows), np.int64)
        before[order] = sums - sums[starts]
        states = barrier.phase[rows] << _COUNT_BITS | np.maximum(barrier.pending[rows] - before, 0)
        barrier.pending -= totals
        if drop:
            barrier.expected -= totals
        self._turn(barrier, rows)
        return states.astype(np.uint64)

    def announce(self, barrier: PhaseBarrier, users: Users, amounts: Array, site: Site) -> None:
        """Expect bytes in the present phase."""
        np.add.at(barrier.missing_bytes, users.rows, amounts)
        np.add.at(barrier.announced, users.rows, amounts)
        barrier.announcements[site.index] = barrier.announcer = site
        self._turn(barrier, users.rows)

    def bring(self, barrier: PhaseBarrier, rows: Array, amounts: Array, site: Site) -> None:
        """Record bytes that a copy has brought."""
        np.subtract.at(barrier.missing_bytes, rows, amounts)
        barrier.copies[site.index] = site
        self._turn(barrier, rows)

    def agent(self, barrier: PhaseBarrier) -> int:
        """Return the agent that copies for this barrier."""
        if barrier.agent is None:
            barrier.agent = self._resident.shared_shadow.clocks.agent()
        return barrier.agent

    def _give(self, barrier: PhaseBarrier, users: Users) -> None:
        if not self._resident.check:
            return
        clocks, distance = self._resident.shared_shadow.clocks, users.rows - users.owners
        for far in np.unique(distance):
            pairs = clocks.pairs_at(users.owners[distance == far], users.columns[distance == far])
            barrier.given = clocks.give(barrier.given, pairs, pairs[0] + far)

    def take(self, barrier: PhaseBarrier, users: Users) -> None:
        """Let threads know what the end of the last phase tells."""
        if not self._resident.check or not len(users.rows):
            return
        clocks = self._resident.shared_shadow.clocks
        pairs = clocks.pairs_at(users.rows, users.columns)
        clocks.take(barrier.done, pairs)
        if barrier.agent is not None:
            clocks.learn(barrier.agent, pairs, barrier.completed[pairs[0]])

    def _turn(self, barrier: PhaseBarrier, rows: Array) -> None:
        """End the phase in those of the blocks where nothing is pending any more."""
        self._changed()
        over = np.zeros(len(barrier.live), np.bool_)
        over[rows] = True
        over &= barrier.live & (barrier.pending == 0) & (barrier.missing_bytes == 0)
        if not over.any():
            return
        barrier.phase[over] += 1
        barrier.completed[over] += 1
        barrier.pending[over] = barrier.expected[over]
        filled = over & (barrier.announced > 0)
        if barrier.announcer is not None and filled.any():
            self._resident.launch.rings.add(barrier.announcer, barrier.address, barrier.announced[filled])
            barrier.announced[filled] = 0
        if self._resident.check:
            barrier.given = self._resident.shared_shadow.clocks.fitted(barrier.given)
            barrier.done = self._resident.shared_shadow.clocks.fitted(barrier.done)
            barrier.done[:, over] = np.maximum(barrier.done, barrier.given)[:, over]
            barrier.given[:, over] = 0

    def _changed(self) -> None:
        self.changes += 1
        self._resident.launch.changes.count += 1

    def _say(self, kind: FindingKind, site: Site, message: str, users: Users) -> None:
        self._resident.reports.say(kind, site, message, int(users.owners[0]), int(users.columns[0]))

    def finish(self) -> None:
        """Report bytes that do not add up when all threads have ended."""
        for barrier in self._at.values():
            wrong = np.flatnonzero(barrier.live & (barrier.missing_bytes != 0))
            if not len(wrong):
                continue
            amount = int(barrier.missing_bytes[wrong[0]])
            sites = [*(barrier.copies if amount < 0 else barrier.announcements).values()]
            message = f"The block of {{who}} ends while {self.balance(barrier, int(wrong[0]))}"
            self._resident.reports.say(FindingKind.TRANSACTION_BYTES, sites[-1], message, int(wrong[0]), 0)

    def balance(self, barrier: PhaseBarrier, row: int) -> str:
        """Return how the bytes of a block's barrier do not add up."""
        amount, place = int(barrier.missing_bytes[row]), f"the mbarrier at byte {barrier.address:,} of shared memory"
        if amount > 0:
            lines = lines_of([*barrier.announcements.values()])
            return f"{place} misses {amount:,} bytes that expect_tx announced{lines} and no copy brought"
        lines = lines_of([*barrier.copies.values()])
        return f"copies{lines} brought {-amount:,} bytes more to {place} than expect_tx announced"


def phase_over(barrier: PhaseBarrier, rows: Array, wanted: Array, parity: bool) -> Array:
    """Return True where the phase that `wanted` names is complete: by its parity, or by the state of an arrival."""
    phase = barrier.phase[rows]
    return (phase & 1) != (wanted.astype(np.int64) & 1) if parity else phase > wanted.astype(np.int64) >> _COUNT_BITS


def pending_count(state: Array) -> Array:
    """Return the arrivals that were pending before the one that gave a state."""
    return (state & np.uint64(_COUNT)).astype(np.uint32)


def lines_of(sites: list[Site]) -> str:
    """Return ` at line 3`, ` at lines 3 and 5`, or nothing if the places are unknown."""
    lines = sorted({site.place.own.line for site in sites if site.place is not None})
    if not lines:
        return ""
    first = ", ".join(map(str, lines[:-1]))
    return f" at line {lines[0]}" if len(lines) == 1 else f" at lines {first} and {lines[-1]}"
