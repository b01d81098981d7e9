"""Executes the threads of some resident blocks in lock-step.

Worker-only: imports numpy. All threads that are at one instruction execute it together. After a divergence those
furthest behind in the program's text go first, so that they meet again. Threads that keep looping while others could
change the value they wait for let the others go first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_lsp.emulate import products, taint
from kernel_lsp.emulate.barriers import Barriers
from kernel_lsp.emulate.bulk import BulkGroups
from kernel_lsp.emulate.clusters import ClusterBarriers
from kernel_lsp.emulate.copies import Copies
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoded
from kernel_lsp.emulate.errors import Unfinished, internal, placed
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.phases import PhaseBarriers
from kernel_lsp.emulate.program import Symbol
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.resident import Resident
from kernel_lsp.emulate.swizzles import Swizzles
from kernel_lsp.emulate.waits import PhaseWaits
from kernel_lsp.emulate.wgmma import MatrixGroups
from kernel_lsp.errors import CannotJudgeError

_PATIENCE = 16  # iterations of a loop before others go first


@dataclass(slots=True)
class _Group:
    """Threads at one instruction.

    Attributes:
        stood_back: number of times they let others go first since they entered their loop.
        rounds: iterations of the loop since they last did.
        loop_end: last instruction of that loop; -1 outside a loop.
        state: what they held when they last stood back, and how much had changed in the launch by then.
        still: whether that was so already the time before: nothing will change by itself any more.
        waits: True if they should wait for others before they execute the instruction.
    """

    activation: Activation
    position: int
    lanes: Lanes
    stood_back: int = 0
    rounds: int = 0
    loop_end: int = -1
    state: tuple[int, int] = (0, -1)
    still: bool = False
    waits: bool = False

    def moved(self, activation: Activation, position: int, lanes: Lanes, waits: bool = False) -> _Group:
        """Return the group, or some of its threads, at a later position; outside the loop its counts start afresh."""
        if activation is self.activation and position > self.loop_end:
            return _Group(activation, position, lanes, waits=waits)
        return replace(self, activation=activation, position=position, lanes=lanes, waits=waits)


class Blocks:
    """Some resident blocks and the groups of threads that are ready to run."""

    def __init__(self, resident: Resident, entry: Decoded, spinning: dict[str, list[int]]) -> None:
        self.resident = resident
        resident.barriers, resident.copies = Barriers(resident), Copies(resident)
        resident.cluster_barriers, resident.bulk_groups = ClusterBarriers(resident), BulkGroups(resident)
        resident.matrix_groups, resident.swizzles = MatrixGroups(resident), Swizzles(resident)
        resident.phases, resident.phase_waits = PhaseBarriers(resident), PhaseWaits(resident)
        self._waiters = (resident.barriers, resident.cluster_barriers, resident.phase_waits)
        resident.local.reserve(entry.local_bytes)
        self._spinning = spinning
        self._ready: dict[tuple[int, ...], _Group] = {}
        self._put(_Group(Activation(entry, (), None, 0, 0), 0, resident.everyone))

    @property
    def stuck(self) -> bool:
        """Return True if all runnable threads loop, and nothing will ever change for them."""
        return bool(self._ready) and all(map(self._is_still, self._ready.values()))

    def _is_still(self, group: _Group) -> bool:
        return group.still and group.state[1] == self.resident.launch.changes.count

    def _put(self, group: _Group) -> None:
        """Make a group ready, merged with one that is already at the same place."""
        key = (*group.activation.path, group.position)
        there = self._ready.get(key)
        while there is not None and there.activation is not group.activation:  # another function called from there
            key = (*key, 0)
            there = self._ready.get(key)
        if there is not None:
            stood_back = min(group.stood_back, there.stood_back)
            lanes = group.lanes.joined(there.lanes)
            group = replace(group, lanes=lanes, stood_back=stood_back, still=False, waits=False)
        self._ready[key] = group

    def advance(self, budget: int) -> bool:
        """Execute up to `budget` instructions, or until all threads are stuck; return True if all have ended."""
        over = self._advance(budget)
        if over:
            self.resident.settle()
        return over

    def _advance(self, budget: int) -> bool:
        resident, ready = self.resident, self._ready
        stop = resident.steps + budget
        while resident.steps < stop:
            if resident.phase_waits.stirred:
                self._go_on(resident.phase_waits.release(), None)
            if not ready:
                if not self._wake():
                    return True
                continue
            key = next(iter(ready)) if len(ready) == 1 else min(ready, key=self._order)
            if self._is_still(ready[key]) and self.stuck:
                return False
            group = ready.pop(key)
            resident.forced = group.waits
            self._follow(group, stop)
        return not ready and not any(self._waiters)

    def _wake(self) -> bool:
        """Make waiting threads ready, since no others are; return False once all have ended, also if by force."""
        for waiter in self._waiters:
            self._go_on(waiter.release(), None)
        if not self._ready:
            self._go_on(self.resident.phase_waits.time_out(), None)
        if self._ready:
            return True
        if any(self._waiters):
            for waiter in reversed(self._waiters):  # the reports of mbarriers name who waits for whom
                waiter.give_up()
        elif self.resident.check:
            self.resident.phases.finish()
            self.resident.bulk_groups.finish()
            for late in self.resident.shared_shadow.outlived():
                self.resident.reports.outlived(late)
        return False

    def _order(self, key: tuple[int, ...]) -> tuple[bool, int, tuple[int, ...]]:
        group = self._ready[key]
        return group.waits, group.stood_back, key

    def _follow(self, group: _Group, stop: int) -> None:
        """Execute instructions of a group until it splits, waits, meets another or has been in front long enough."""
        resident, activation, lanes = self.resident, group.activation, group.lanes
        decoded = activation.function
        steps, sites = decoded.steps, decoded.sites
        position = group.position
        # Groups further on in the same function are merged with.
        meeting = {other.position for other in self._ready.values() if other.activation is activation}
        end = len(steps)
        warps, count, working = lanes.warps, lanes.count, resident.working(lanes)
        while position < end:
            counters = sites[position].counters
            counters.instructions += warps
            counters.lane_instructions += count
            counters.working_lanes += working
            resident.steps += 1
            try:
                if activation.taint:
                    taint.propagate(resident, activation, lanes, position)
                if activation.unready:
                    products.follow(resident, activation, lanes, position)
                gone = steps[position](resident, activation, lanes)
                if resident.missing:
                    taint.arrived(resident, activation, position)
            except CannotJudgeError as error:
                raise placed(error, sites[position].location) from error.__cause__
            except Unfinished:
                raise
            except Exception as error:
                raise internal(error, sites[position].instruction) from error
            resident.forced = False
            if gone is None:
                position += 1
            elif len(gone) == 1 and gone[0][2] is lanes and gone[0][0] is activation and not gone[0][3]:
                target = gone[0][1]
                if target <= position and self._spins(decoded, target, position):
                    group = self._gone_round(group, target, position, lanes)
                    if group.rounds == 0:
                        self._put(group)
                        return
                elif target > group.loop_end >= 0:
                    group = _Group(activation, target, lanes)
                position = target
            else:
                self._go_on(gone, group, position)
                return
            if position in meeting or resident.steps >= stop:
                self._put(group.moved(activation, position, lanes))
                return
        resident.leave(lanes)  # a kernel without a final `ret`
        self._go_on([], None)

    def _spins(self, decoded: Decoded, target: int, position: int) -> bool:
        """Return True if a loop may be waiting for other threads."""
        return any(target <= at <= position for at in self._spinning.get(decoded.function.name, ()))

    def _gone_round(self, group: _Group, target: int, position: int, lanes: Lanes) -> _Group:
        """Return the group at the start of its loop again; with no iterations left if others should go first."""
        activation = group.activation
        group = replace(group, position=target, lanes=lanes, loop_end=max(position, group.loop_end))
        if group.rounds + 1 < _PATIENCE:
            return replace(group, rounds=group.rounds + 1)
        decoded = activation.function
        slots = {slot for at in range(target, position + 1) for slot in decoded.flow(at).results}
        held = [activation.registers[slot] for slot in sorted(slots)]
        state = (
            hash(tuple(lanes.read(value).tobytes() for value in held if value is not None)),
            (self.resident.launch.changes.count),
        )
        return replace(group, stood_back=group.stood_back + 1, rounds=0, still=state == group.state, state=state)

    def _go_on(self, gone: list[tuple[Activation, int, Lanes, bool]], group: _Group | None, position: int = -1) -> None:
        for activation, target, lanes, waits in gone:
            if group is None:
                self._put(_Group(activation, target, lanes, waits=waits))
            elif (
                activation is group.activation
                and target <= position
                and not waits
                and (self._spins(activation.function, target, position))
            ):
                self._put(self._gone_round(group, target, position, lanes))
            else:
                self._put(group.moved(activation, target, lanes, waits))
        if not gone:
            for barriers in (self.resident.barriers, self.resident.cluster_barriers):
                if barriers and (released := barriers.release()):
                    self._go_on(released, None)

    def give_up(self, sites: str) -> None:
        """Report endlessly looping threads, and end them."""
        groups = sorted(self._ready.values(), key=lambda group: -group.lanes.count)
        for group in groups[:1]:
            site = _line_of(group.activation.function, group.position)
            self.resident.reports.about_lanes(FindingKind.RUNAWAY, site, f"{{who}} {sites}", group.lanes)
        self.resident.settle()
        self._ready.clear()


def _line_of(decoded: Decoded, position: int) -> Site:
    """Return the instruction at which a loop is reported: the backward branch that closes it."""
    for site in decoded.sites[position:]:
        operands = site.instruction.operands
        if site.instruction.parts[0] == "bra" and operands and isinstance(operands[0], Symbol):
            target = decoded.function.labels.get(operands[0].name, len(decoded.sites))
            if target <= position:
                return site
    return decoded.sites[min(position, len(decoded.sites) - 1)]
