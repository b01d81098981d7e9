"""Threads that wait for a phase of an mbarrier, and the reasons why it never ends.

Worker-only: imports numpy. The hardware suspends a thread in `try_wait` until the phase is complete or some time has
passed. Here it is suspended until the phase is complete, and time passes only when nobody else can go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Successors
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.phases import PhaseBarrier, Users, lines_of, phase_over
from kernel_lsp.emulate.registers import Activation, Store

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_TIME_OUTS = 3  # without any change in between, until nothing is expected to change any more


@dataclass(slots=True)
class PhaseWait:
    """Threads suspended at one instruction.

    Attributes:
        activation, following: where they continue.
        lanes: these threads.
        site: the instruction.
        store: takes the answer.
        users: the threads by barrier, with the phases that they want, and those in which they began to wait.
        parity: whether these are parities, not states.
        acquires: whether they see what the arriving threads did.
    """

    activation: Activation
    following: int
    lanes: Lanes
    site: Site
    store: Store
    users: list[tuple[PhaseBarrier, Users, Array, Array]]
    parity: bool
    acquires: bool


class PhaseWaits:
    """The suspended threads of the resident blocks."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._waiting: list[PhaseWait] = []
        self._seen = 0  # changes of the barriers when they were last looked at
        self._timed_out = (0, 0)  # how often, since how many changes

    def __bool__(self) -> bool:
        """Return True if any thread waits."""
        return bool(self._waiting)

    @property
    def stirred(self) -> bool:
        """Return True if a barrier has changed since the waiting threads were last looked at."""
        return bool(self._waiting) and self._seen != self._resident.phases.changes

    def test(self, wait: PhaseWait) -> Array:
        """Return, for the extent, the threads whose phase is complete, and those that name no barrier.

        These have been reported; they go on, as they would wait for ever.
        """
        over = np.ones(self._resident.extent, np.bool_)
        for barrier, users, wanted, _ in wait.users:
            done = phase_over(barrier, users.rows, wanted, wait.parity)
            over[users.owners, users.columns] = done
            if wait.acquires and done.any():
                self._resident.phases.take(barrier, users.part(done))
        return over

    def wait(self, wait: PhaseWait) -> Successors | None:
        """Suspend the threads whose phase is not complete; return where the others go, or None if those are all."""
        over = wait.lanes.read(self.test(wait))
        passing, waiting = wait.lanes.where(over)
        if waiting is None:
            wait.store(wait.activation, np.ones((1, 1), np.bool_), wait.lanes)
            return None
        self._suspend(wait, waiting)
        if passing is None:
            return []
        wait.store(wait.activation, np.ones((1, 1), np.bool_), passing)
        return [(wait.activation, wait.following, passing, False)]

    def _suspend(self, wait: PhaseWait, lanes: Lanes) -> None:
        mask = lanes.to_mask()
        wait.lanes = lanes
        kept = ((b, users, wanted, begun, mask[users.owners, users.columns]) for b, users, wanted, begun in wait.users)
        wait.users = [(b, users.part(on), wanted[on], begun[on]) for b, users, wanted, begun, on in kept if on.any()]
        self._waiting.append(wait)

    def release(self) -> Successors:
        """Wake and return the threads whose phase is complete."""
        self._seen = self._resident.phases.changes
        going: Successors = []
        waiting, self._waiting = self._waiting, []
        for wait in waiting:
            self._report_overtaken(wait)
            gone = self.wait(wait)
            going += [(wait.activation, wait.following, wait.lanes, False)] if gone is None else gone
        return going

    def _report_overtaken(self, wait: PhaseWait) -> None:
        """Report threads that go on now and waited by parity, though another phase than theirs has ended too."""
        for barrier, users, wanted, begun in wait.users:
            over = phase_over(barrier, users.rows, wanted, wait.parity)
            late = np.flatnonzero(over & (barrier.phase[users.rows] > begun + 1) & wait.parity)
            if len(late):
                first = int(late[0])
                phase, count = int(begun[first]), int(barrier.expected[users.rows[first]])
                ends = lines_of([site for site, _, _ in barrier.arrivals.values()])
                message = (
                    f"{{who}} waits for phase {phase} of the mbarrier at byte {barrier.address:,} of shared memory, "
                    f"and phase {phase + 1} ends before it can go on: {count:,} arrivals{ends} end a phase and do not "
                    "wait for it, which by its parity may miss its own"
                )
                place = int(users.owners[first]), int(users.columns[first])
                self._resident.reports.say(FindingKind.MISUSED_MBARRIER, wait.site, message, *place, count=len(late))

    def time_out(self) -> Successors:
        """Wake all threads without success, since nobody else can go on; none if that was in vain before."""
        times, since = self._timed_out
        changes = self._resident.phases.changes
        times = times + 1 if since == changes else 1
        self._timed_out = times, changes
        if times > _TIME_OUTS:
            return []
        waiting, self._waiting = self._waiting, []
        for wait in waiting:
            wait.store(wait.activation, np.zeros((1, 1), np.bool_), wait.lanes)
        return [(wait.activation, wait.following, wait.lanes, False) for wait in waiting]

    def give_up(self) -> None:
        """Report and end the waiting threads, whose phases never end."""
        for wait in self._waiting:
            for barrier, users, wanted, _ in wait.users:
                self._report(wait, barrier, users, wanted)
            self._resident.leave(wait.lanes)
        self._waiting.clear()

    def _report(self, wait: PhaseWait, barrier: PhaseBarrier, users: Users, wanted: Array) -> None:
        row, column = int(users.owners[0]), int(users.columns[0])
        at = int(users.rows[0])
        which = f"parity {int(wanted[0]) & 1}" if wait.parity else "the state of its arrival"
        message = (
            f"{{who}} waits for phase {int(barrier.phase[at])} ({which}) of the mbarrier at byte {barrier.address:,} "
            f"of shared memory, which never ends: {self._why(barrier, at)}"
        )
        only_bytes = barrier.pending[at] == 0
        kind = FindingKind.TRANSACTION_BYTES if only_bytes else FindingKind.DEADLOCK
        self._resident.reports.say(kind, wait.site, message, row, column, count=len(users.rows))

    def _why(self, barrier: PhaseBarrier, row: int) -> str:
        pending, expected = int(barrier.pending[row]), int(barrier.expected[row])
        if not pending:
            return self._resident.phases.balance(barrier, row)
        why = f"{pending:,} of {expected:,} arrivals are missing"
        if not barrier.arrivals:
            return f"{why}, and no thread arrives there"
        why += f" (threads arrive{lines_of([site for site, _, _ in barrier.arrivals.values()])})"
        held = self._held(barrier)
        if held:
            return f"{why}; {held}"
        if pending == expected and barrier.phase[row]:
            why += f"; phase {int(barrier.phase[row]) - 1} is the last one that ended"
        return why

    def _held(self, barrier: PhaseBarrier) -> str:
        """Return where a thread that has arrived at the barrier before waits now; empty if it does not."""
        for site, row, column in barrier.arrivals.values():
            for wait in self._waiting:
                for other, users, *_ in wait.users:
                    if other is barrier or not ((users.owners == row) & (users.columns == column)).any():
                        continue
                    thread = self._resident.reports.thread(column)
                    return (
                        f"thread {thread}, which arrives{lines_of([site])}, itself waits"
                        f"{lines_of([wait.site])} for the mbarrier at byte {other.address:,}"
                    )
        return ""
