"""Running a launch: blocks made resident in turn, and their threads brought forward in lock-step.

Worker-only: imports numpy. All threads of the resident blocks that are at one instruction execute it together. Where
they have parted, those furthest behind in the program's text go first, so that they meet again. Threads that keep going
round a loop in which others could change what they wait for let the others go first, and blocks let other blocks in.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from kernel_lsp.emulate import taint
from kernel_lsp.emulate.atomic import bind_atomics
from kernel_lsp.emulate.barriers import Barriers, bind_barriers
from kernel_lsp.emulate.control import bind_control
from kernel_lsp.emulate.cooperation import bind_matrix, bind_warp
from kernel_lsp.emulate.copies import Copies, bind_copies
from kernel_lsp.emulate.counters import Counters, RunCounters, Site, summed
from kernel_lsp.emulate.decode import Binder, Decoded, DecodedProgram, bind_arithmetic, bind_moves
from kernel_lsp.emulate.errors import EmulationError
from kernel_lsp.emulate.findings import Finding, FindingKind, Findings
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import GlobalMemory
from kernel_lsp.emulate.program import Function, Program, Symbol
from kernel_lsp.emulate.ptx import type_bytes
from kernel_lsp.emulate.races import GlobalShadow
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.reports import Reports
from kernel_lsp.emulate.resident import Changes, Launch, Resident
from kernel_lsp.emulate.special import Geometry, Triple
from kernel_lsp.emulate.transfers import bind_transfers, space_of

_BINDERS: tuple[Binder, ...] = (
    bind_moves,
    bind_transfers,
    bind_control,
    bind_atomics,
    bind_barriers,
    bind_copies,
    bind_warp,
    bind_matrix,
    bind_arithmetic,
)
_LANES = 1 << 15  # threads resident together: enough to make numpy's overhead small, few enough for the caches
_MOST_LANES = 1 << 19  # ... where blocks wait for each other
_PATIENCE = 16  # rounds of a loop before others are let go first
_SLICE = 20_000  # instructions before other blocks are let in, in programs whose blocks may wait for each other

_decoded: weakref.WeakKeyDictionary[Program, DecodedProgram] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Options:
    """How to run.

    Attributes:
        check: whether memory accesses are followed for races and uninitialised reads, and counted.
        blocks: linear numbers of the blocks to run, or None for the whole grid.
        budget: instructions that a set of resident blocks may execute before that is taken for an endless loop.
    """

    check: bool = True
    blocks: tuple[int, ...] | None = None
    budget: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Result:
    """What one launch did.

    Attributes:
        findings: what is wrong with it, in order of appearance.
        counters: what it cost, by source line.
        instructions: executed by warps.
        blocks: how many were run.
        approximate: whether instructions were executed whose results on a GPU may differ in the last bits.
    """

    findings: tuple[Finding, ...]
    counters: RunCounters
    instructions: int
    blocks: int
    approximate: bool = False


def run(
    program: Program,
    entry: str,
    grid: Triple,
    block: Triple,
    shared_bytes: int,
    parameters: bytes,
    memory: GlobalMemory,
    options: Options | None = None,
) -> Result:
    """Execute one launch.

    Args:
        program: the module.
        entry: symbol of the kernel.
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        shared_bytes: dynamic shared memory.
        parameters: the parameter block, each parameter at its offset (`Function.parameter_offsets`).
        memory: what the kernel can reach; pointers among the parameters are addresses in it.
        options: how to run.

    Raises:
        EmulationError: there is no such kernel, or the launch does not fit it.
        NeedsGpu: the kernel came to an instruction that is not emulated.
    """
    options = options or Options()
    function = program.functions.get(entry)
    if function is None or not function.entry:
        raise EmulationError(f"the PTX has no kernel `{entry}`.")
    if len(parameters) < function.parameter_bytes:
        raise EmulationError(f"kernel `{entry}` takes {function.parameter_bytes} bytes of parameters.")
    threads = block[0] * block[1] * block[2]
    if not 0 < threads <= 1024 or min(grid) < 1:
        raise EmulationError(f"kernel `{entry}` cannot be launched with grid {grid} and block {block}.")
    decoded = _decoded.setdefault(program, DecodedProgram(program))
    decoded_entry = decoded.function(entry, _BINDERS)
    with np.errstate(all="ignore"):
        return _Run(decoded_entry, decoded, grid, block, shared_bytes, parameters, memory, options).execute()


@dataclass(slots=True)
class _Group:
    """Threads at one instruction.

    Attributes:
        stood_back: how often they have let others go first since they came to the loop they are in.
        rounds: how often they have gone round it since they last did.
        loop_end: the last instruction of that loop; -1 outside of one.
        state: what they held when they last stood back, and how much had changed in the launch by then.
        still: whether that was so already the time before: nothing will change by itself any more.
        waits: whether they had better wait for others before they execute the instruction.
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
        """Some of them, or all, further on; outside of the loop they start afresh."""
        if activation is self.activation and position > self.loop_end:
            return _Group(activation, position, lanes, waits=waits)
        return replace(self, activation=activation, position=position, lanes=lanes, waits=waits)


class _Blocks:
    """Some resident blocks and the groups of threads that are ready to run."""

    def __init__(self, resident: Resident, entry: Decoded, spinning: dict[str, list[int]]) -> None:
        self.resident = resident
        resident.barriers, resident.copies = Barriers(resident), Copies(resident)
        resident.local.reserve(entry.local_bytes)
        self._spinning = spinning
        self._ready: dict[tuple[int, ...], _Group] = {}
        self._put(_Group(Activation(entry, (), None, 0, 0), 0, resident.everyone))

    @property
    def stuck(self) -> bool:
        """Whether all threads that could run go round in loops and nothing will ever change for them."""
        return bool(self._ready) and all(map(self._is_still, self._ready.values()))

    def _is_still(self, group: _Group) -> bool:
        return group.still and group.state[1] == self.resident.launch.changes.count

    def _put(self, group: _Group) -> None:
        """Make a group ready, together with the one that is already there."""
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
        """Execute up to so many instructions, or until all threads are stuck; whether all have ended."""
        resident, ready = self.resident, self._ready
        stop = resident.steps + budget
        while resident.steps < stop:
            if not ready:
                if not resident.barriers:
                    return True
                self._go_on(resident.barriers.release(), None)
                if not ready:
                    resident.barriers.give_up()
                    return True
                continue
            key = next(iter(ready)) if len(ready) == 1 else min(ready, key=self._order)
            if self._is_still(ready[key]) and self.stuck:
                return False
            group = ready.pop(key)
            resident.forced = group.waits
            self._follow(group, stop)
        return not ready and not resident.barriers

    def _order(self, key: tuple[int, ...]) -> tuple[bool, int, tuple[int, ...]]:
        group = self._ready[key]
        return group.waits, group.stood_back, key

    def _follow(self, group: _Group, stop: int) -> None:
        """Execute instructions of a group until it parts, waits, meets another or has stood in front long enough."""
        resident, activation, lanes = self.resident, group.activation, group.lanes
        decoded = activation.function
        steps, sites = decoded.steps, decoded.sites
        position = group.position
        # Groups further on in the same function are met where they stand.
        meeting = {other.position for other in self._ready.values() if other.activation is activation}
        end = len(steps)
        warps, count = lanes.warps, lanes.count
        while position < end:
            counters = sites[position].counters
            counters.instructions += warps
            counters.lane_instructions += count
            resident.steps += 1
            if activation.taint:
                taint.propagate(resident, activation, lanes, position)
            gone = steps[position](resident, activation, lanes)
            if resident.missing:
                taint.arrived(resident, activation, position)
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
        """Whether a loop may be waiting for other threads."""
        return any(target <= at <= position for at in self._spinning.get(decoded.function.name, ()))

    def _gone_round(self, group: _Group, target: int, position: int, lanes: Lanes) -> _Group:
        """The group at the start of the loop again; with no rounds if others should go first now."""
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
        if not gone and self.resident.barriers and (released := self.resident.barriers.release()):
            self._go_on(released, None)

    def give_up(self, sites: str) -> None:
        """Report where threads go round without end, and end them."""
        groups = sorted(self._ready.values(), key=lambda group: -group.lanes.count)
        for group in groups[:1]:
            site = _line_of(group.activation.function, group.position)
            self.resident.reports.about_lanes(FindingKind.RUNAWAY, site, f"{{who}} {sites}", group.lanes)
        self._ready.clear()


def _line_of(decoded: Decoded, position: int) -> Site:
    """The instruction that a loop is reported at: the backward branch that closes it."""
    for site in decoded.sites[position:]:
        operands = site.instruction.operands
        if site.instruction.parts[0] == "bra" and operands and isinstance(operands[0], Symbol):
            target = decoded.function.labels.get(operands[0].name, len(decoded.sites))
            if target <= position:
                return site
    return decoded.sites[min(position, len(decoded.sites) - 1)]


class _Run:
    """One launch."""

    def __init__(
        self,
        entry: Decoded,
        program: DecodedProgram,
        grid: Triple,
        block: Triple,
        dynamic_bytes: int,
        parameters: bytes,
        memory: GlobalMemory,
        options: Options,
    ) -> None:
        self._entry, self._program, self._options, self._memory = entry, program, options, memory
        self._grid, self._block, self._dynamic = grid, block, dynamic_bytes
        blocks = grid[0] * grid[1] * grid[2]
        self._numbers = np.array(options.blocks if options.blocks is not None else range(blocks), np.int64)
        self._findings = Findings()
        for site in program.sites:
            site.counters = Counters()
        functions = [each.function for each in program.functions.values() if not each.function.entry or each is entry]
        symbols, self._shared_bytes = _layout(program.program, functions, dynamic_bytes)
        symbols |= {name: buffer.address for name, buffer in memory.variables(program.program).items()}
        symbols |= program.program.numbers
        shared_grain, global_grain = _grains(functions)
        self._spinning = {function.name: _spin_sites(function) for function in functions}
        self._waits = any(self._spinning.values())
        ordered = any(i.parts[0] in ("membar", "fence") for f in functions for i in f.code) or self._waits
        self._block_buffer = memory.allocate("kernel parameters", parameters.ljust(16, b"\0"), writable=False)
        # Cooperative groups find the barrier of the grid in a workspace whose address is in these registers.
        self._workspace = memory.allocate("grid workspace", bytes(256))
        environment = {
            "%envreg1": self._workspace.address >> 32,
            "%envreg2": self._workspace.address & 0xFFFFFFFF,
        }
        self._launch = Launch(
            memory,
            symbols,
            self._block_buffer,
            entry.function.parameter_offsets,
            program.sites,
            GlobalShadow(memory.stamps, blocks, global_grain, ordered),
            options.check,
            shared_grain,
            environment,
            Changes(),
            self._waits,
        )

    def execute(self) -> Result:
        """Run all blocks."""
        threads = self._block[0] * self._block[1] * self._block[2]
        together = max(1, _LANES // threads)
        waiting = deque(self._numbers[at : at + together] for at in range(0, len(self._numbers), together))
        running: deque[_Blocks] = deque()
        try:
            while waiting or running:
                resident = sum(blocks.resident.living for blocks in running)
                if waiting and (not running or (self._waits and resident < _MOST_LANES)):
                    running.append(self._admit(waiting.popleft()))
                    current = running.pop()
                else:
                    current = running.popleft()
                if current.advance(_SLICE if self._waits else self._options.budget + 1):
                    continue
                if current.resident.steps > self._options.budget:
                    current.give_up(f"is still in this loop after {current.resident.steps:,} instructions")
                    waiting.clear()
                elif current.stuck and not waiting and all(each.stuck for each in running):
                    current.give_up("waits in this loop for a change that no thread makes")
                else:
                    running.append(current)
        finally:
            self._memory.release(self._block_buffer)
            self._memory.release(self._workspace)
            self._memory.stamps = self._launch.global_shadow.next_stamp
        least = self._launch.global_shadow.touched() if self._options.check else (0, 0)
        counters = summed(self._program.sites, *least)
        approximate = any(site.approximate and site.counters.instructions for site in self._program.sites)
        return Result(self._findings.all(), counters, counters.total.instructions, len(self._numbers), approximate)

    def _admit(self, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> _Blocks:
        geometry = Geometry(self._grid, self._block, numbers, self._shared_bytes, self._dynamic)
        reports = Reports(self._findings, geometry, self._memory, self._program.sites)
        return _Blocks(Resident(self._launch, geometry, reports), self._entry, self._spinning)


def _layout(program: Program, functions: list[Function], dynamic_bytes: int) -> tuple[dict[str, int], int]:
    """Offsets of shared variables in a block's shared memory, and the size of it."""
    named = set[str]().union(*(program.named[function.name] for function in functions))
    variables = [v for v in program.variables.values() if v.space == "shared" and v.name in named]
    variables += [v for function in functions for v in function.variables if v.space == "shared"]
    places: dict[str, int] = {}
    size = 0
    for variable in variables:
        if variable.size:
            places[variable.name] = -(-size // variable.align) * variable.align
            size = places[variable.name] + variable.size
    dynamic = [v for v in variables if not v.size]
    start = -(-size // 16) * 16 if dynamic or dynamic_bytes else size
    places |= {v.name: start for v in dynamic}
    return places, start + dynamic_bytes


def _grains(functions: list[Function]) -> tuple[int, int]:
    """The least width of an access to shared and to global memory."""
    shared = global_ = 16
    for function in functions:
        for instruction in function.code:
            parts = instruction.parts
            if parts[0] not in ("ld", "st", "atom", "red", "cp", "ldu", "wmma"):
                continue
            if parts[0] == "cp":
                shared, global_ = min(shared, 4), min(global_, 1 if len(instruction.operands) > 3 else 4)
                continue
            size = min(16, type_bytes(parts[-1])) if parts[0] != "wmma" else 1
            space = space_of(parts)
            if space in ("shared", ""):
                shared = min(shared, size)
            if space in ("global", ""):
                global_ = min(global_, size)
    return shared, global_


def _spin_sites(function: Function) -> list[int]:
    """Atomic and volatile accesses: a loop with one of them may be waiting for another thread."""
    words = {"volatile", "relaxed", "acquire", "mmio"}
    return [
        number
        for number, instruction in enumerate(function.code)
        if instruction.parts[0] == "atom" or (instruction.parts[0] == "ld" and not words.isdisjoint(instruction.parts))
    ]
