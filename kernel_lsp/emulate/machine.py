"""Runs a launch: blocks become resident in turn, and let others in if they may wait for each other.

Worker-only: imports numpy. `emulate.lockstep` executes the threads of resident blocks.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.device.architectures import BLOCK_THREADS
from kernel_lsp.device.device import DEFAULT_ARCH, Device, device_named
from kernel_lsp.emulate.atomic import bind_atomics
from kernel_lsp.emulate.barriers import bind_barriers
from kernel_lsp.emulate.bulk import bind_bulk
from kernel_lsp.emulate.clusters import bind_clusters
from kernel_lsp.emulate.control import bind_control
from kernel_lsp.emulate.cooperation import bind_matrix, bind_warp
from kernel_lsp.emulate.copies import bind_copies
from kernel_lsp.emulate.counters import Counters, RunCounters, summed
from kernel_lsp.emulate.decode import Binder, Decoded, DecodedProgram, bind_arithmetic, bind_moves
from kernel_lsp.emulate.errors import EmulatorFault, LaunchError, Unfinished, internal
from kernel_lsp.emulate.findings import Finding, FindingCollector
from kernel_lsp.emulate.lockstep import Blocks
from kernel_lsp.emulate.mapchanges import bind_map_changes
from kernel_lsp.emulate.mbarrier import bind_mbarriers
from kernel_lsp.emulate.memory import Buffer, GlobalMemory, Unwritten
from kernel_lsp.emulate.program import Function, Program, Variable
from kernel_lsp.emulate.ptx import type_bytes
from kernel_lsp.emulate.races import GlobalShadow
from kernel_lsp.emulate.remote_stores import bind_remote_stores
from kernel_lsp.emulate.reports import Reports
from kernel_lsp.emulate.resident import ChangeCount, LaunchState, Resident
from kernel_lsp.emulate.rings import RegisterShare, Ring, register_shares
from kernel_lsp.emulate.sampling import steered_by_data
from kernel_lsp.emulate.special import Geometry, Moment, Triple
from kernel_lsp.emulate.tiles import bind_tiles
from kernel_lsp.emulate.transfers import bind_transfers, space_of
from kernel_lsp.emulate.wgmma import bind_wgmma
from kernel_lsp.emulate.wording import SharedVariables
from kernel_lsp.errors import CannotJudgeError, KernelLspError

BINDERS: tuple[Binder, ...] = (
    bind_moves,
    bind_transfers,
    bind_control,
    bind_atomics,
    bind_barriers,
    bind_clusters,
    bind_mbarriers,
    bind_bulk,
    bind_remote_stores,
    bind_tiles,
    bind_map_changes,
    bind_copies,
    bind_warp,
    bind_matrix,
    bind_wgmma,
    bind_arithmetic,
)
_LANES = 1 << 15  # threads resident together: enough to make numpy's overhead small, few enough for the caches
_MOST_LANES = 1 << 19  # ... where blocks wait for each other
_SETS = 8  # of blocks that come one set after another, where they come in another order
_SLICE = 20_000  # instructions before other blocks are let in, in programs whose blocks may wait for each other

_DEFAULT = device_named(DEFAULT_ARCH)
_decoded: weakref.WeakKeyDictionary[Program, DecodedProgram] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    Attributes:
        check: True to check memory accesses for races and uninitialised reads, and count them.
        blocks: linear numbers of the blocks to run, or None for the whole grid.
        budget: instructions that a set of resident blocks may execute before that is taken for an endless loop.
        partial: whether blocks may have been left out, now or in an earlier launch. Then nothing is a mistake that they
            may be the reason for: reading memory that nobody is known to have written, waiting without end. Nor is it
            one to spend the budget.
        device: the GPU that special registers tell of.
        order: seed of the order in which blocks come, where they may wait for each other and all fit together; an odd
            one is the order of the even one before it, backwards. None lets them come by their numbers. A GPU promises
            no order, or how far one block is when another is.
    """

    check: bool = True
    blocks: tuple[int, ...] | None = None
    budget: int = 1_000_000
    partial: bool = False
    device: Device = _DEFAULT
    order: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The result of one launch.

    Attributes:
        findings: its mistakes, in order of appearance.
        counters: its costs, by source line.
        instructions: executed by warps.
        blocks: number of blocks that were run.
        approximate: whether instructions were executed whose results on a GPU may differ in the last bits.
        steps: instructions executed, once for all threads that did so together.
        ended: why the blocks of a partial launch, or of one with findings, did not run to their end; None if they did.
        written: buffers that blocks wrote to, if memory is checked.
        rings: the stages that mbarriers told to be filled.
        shares: registers that warps took or gave up.
    """

    findings: tuple[Finding, ...]
    counters: RunCounters
    instructions: int
    blocks: int
    approximate: bool = False
    steps: int = 0
    ended: str | None = None
    written: frozenset[Buffer] = frozenset()
    rings: tuple[Ring, ...] = ()
    shares: tuple[RegisterShare, ...] = ()


def run(
    program: Program,
    entry: str,
    grid: Triple,
    block: Triple,
    shared_bytes: int,
    parameters: bytes,
    memory: GlobalMemory,
    options: Options | None = None,
) -> LaunchResult:
    """Execute one launch and return its result.

    Args:
        program: the module.
        entry: symbol of the kernel.
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        shared_bytes: dynamic shared memory.
        parameters: the parameter block, each parameter at its offset (`Function.parameter_offsets`).
        memory: the buffers that the kernel can access; pointers among the parameters are addresses in it.
        options: how to run.

    Raises:
        LaunchError: no GPU can launch such blocks.
        NeedsGpu: the kernel came to an instruction that is not emulated, before any finding.
        EmulatorFault: the emulator failed, before any finding, or there is no such kernel.
    """
    options = options or Options()
    function = program.functions.get(entry)
    if function is None or not function.entry:
        raise EmulatorFault(f"the PTX has no kernel `{entry}`.")
    if len(parameters) < function.parameter_bytes:
        raise EmulatorFault(f"kernel `{entry}` takes {function.parameter_bytes} bytes of parameters.")
    threads = block[0] * block[1] * block[2]
    if not 0 < threads <= BLOCK_THREADS or min(grid) < 1:
        limit = f"a block has 1 to {BLOCK_THREADS} threads, and a grid no extent below 1"
        raise LaunchError(f"kernel `{entry}` cannot be launched with grid {grid} and block {block}: {limit}.")
    if any(extent % blocks for extent, blocks in zip(grid, function.cluster or (1, 1, 1), strict=True)):
        raise LaunchError(f"kernel `{entry}` cannot be launched with grid {grid} in clusters of {function.cluster}.")
    decoded = _decoded.setdefault(program, DecodedProgram(program))
    try:
        decoded_entry = decoded.function(entry, BINDERS)
        with np.errstate(all="ignore"):
            return _Run(decoded_entry, decoded, grid, block, shared_bytes, parameters, memory, options).execute()
    except KernelLspError:
        raise
    except Exception as error:
        raise internal(error, None) from error


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
        self._numbers = _in_clusters(options.blocks, grid, entry.function.cluster)
        self._findings = FindingCollector()
        for site in program.sites:
            site.counters = Counters()
        functions = [each.function for each in program.functions.values() if not each.function.entry or each is entry]
        places, self._shared_bytes = _layout(program.program, functions, dynamic_bytes)
        self._shared = SharedVariables(places)
        symbols = {variable.name: offset for variable, offset in places.items()}
        symbols |= {name: buffer.address for name, buffer in memory.variables(program.program).items()}
        symbols |= program.program.numbers
        shared_grain, global_grain = _grains(functions)
        self._spinning = {function.name: _spin_sites(function) for function in functions}
        # An mbarrier is waited for within a block or a cluster, whose blocks are resident together anyway.
        self._waits = any(
            function.code[at].parts[0] != "mbarrier" for function in functions for at in self._spinning[function.name]
        )
        words = {i.parts[0] for f in functions for i in f.code}
        ordered = self._waits or not words.isdisjoint(("membar", "fence")) or entry.function.cluster is not None
        self._block_buffer = memory.allocate("kernel parameters", parameters.ljust(16, b"\0"), writable=False)
        # Cooperative groups find the barrier of the grid in a workspace whose address is in these registers.
        self._workspace = memory.allocate("grid workspace", bytes(256))
        self._block_buffer.ours = self._workspace.ours = True
        environment = {
            "%envreg1": self._workspace.address >> 32,
            "%envreg2": self._workspace.address & 0xFFFFFFFF,
        }
        self._launch = LaunchState(
            memory,
            symbols,
            self._block_buffer,
            entry.function.parameter_offsets,
            program.sites,
            GlobalShadow(memory.stamps, blocks, global_grain, ordered),
            options.check,
            shared_grain,
            environment,
            ChangeCount(),
            self._waits,
            self._policy(),
            Moment.now(),
        )
        self._ended: str | None = None
        self._steps = 0

    def _policy(self) -> Unwritten:
        if not self._options.partial:
            return Unwritten.FAULT
        return Unwritten.UNKNOWN if steered_by_data(self._entry) else Unwritten.ANYTHING

    def execute(self) -> LaunchResult:
        """Run all blocks and return the result."""
        try:
            self._run_blocks()
        except Unfinished:
            self._ended = "it depends on what blocks that were left out write"
        except CannotJudgeError as error:
            if not len(self._findings):  # what was found before holds, and may be why the rest cannot be run
                raise
            self._ended = error.message
        finally:
            self._memory.release(self._block_buffer)
            self._memory.release(self._workspace)
            self._memory.stamps = self._launch.global_shadow.next_stamp
        shadow, options = self._launch.global_shadow, self._options
        least = shadow.touched() if options.check and not options.partial else (0, 0)
        counters = summed(self._program.sites, *least)
        approximate = any(site.approximate and site.counters.instructions for site in self._program.sites)
        return LaunchResult(
            self._findings.all(),
            counters,
            counters.total.instructions,
            self._numbers.size,
            approximate,
            self._steps,
            self._ended,
            frozenset(shadow.written),
            self._launch.rings.rings(),
            register_shares(self._program.sites),
        )

    def _run_blocks(self) -> None:
        threads = self._block[0] * self._block[1] * self._block[2]
        numbers = self._numbers
        together = max(1, _LANES // (threads * numbers.shape[1]))  # clusters
        if self._waits and self._options.order is not None and numbers.size * threads <= _MOST_LANES:
            seed, backwards = divmod(self._options.order, 2)
            numbers = np.random.default_rng(seed).permutation(numbers)[:: -1 if backwards else 1]
            together = min(together, -(-len(numbers) // _SETS))
        waiting = deque(numbers[at : at + together].ravel() for at in range(0, len(numbers), together))
        running: deque[Blocks] = deque()
        while waiting or running:
            resident = sum(blocks.resident.living for blocks in running)
            if waiting and (not running or (self._waits and resident < _MOST_LANES)):
                running.append(self._admit(waiting.popleft()))
                current = running.pop()
            else:
                current = running.popleft()
            if self._advance(current):
                continue
            if current.resident.steps > self._options.budget:
                self._give_up(current, f"is still in this loop after {current.resident.steps:,} instructions")
                waiting.clear()
            elif current.stuck and not waiting and all(each.stuck for each in running):
                self._give_up(current, "waits in this loop for a change that no thread makes")
            else:
                running.append(current)

    def _advance(self, blocks: Blocks) -> bool:
        before = blocks.resident.steps
        try:
            return blocks.advance(_SLICE if self._waits else self._options.budget + 1)
        finally:
            self._steps += blocks.resident.steps - before

    def _give_up(self, blocks: Blocks, why: str) -> None:
        """End blocks that do not end by themselves; if others were left out, that is no mistake of theirs."""
        if self._options.partial:
            self._ended = f"a thread {why}"
        else:
            blocks.give_up(why)

    def _admit(self, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Blocks:
        sizes, options = (self._shared_bytes, self._dynamic), self._options
        place, cluster = self._launch.moment.place, self._entry.function.cluster
        geometry = Geometry(self._grid, self._block, numbers, *sizes, options.device, place, cluster)
        reports = Reports(self._findings, geometry, self._memory, self._shared, self._program.sites)
        return Blocks(Resident(self._launch, geometry, reports), self._entry, self._spinning)


def _layout(program: Program, functions: list[Function], dynamic_bytes: int) -> tuple[dict[Variable, int], int]:
    """Return the offsets of shared variables in a block's shared memory, and its size in bytes."""
    named = set[str]().union(*(program.named[function.name] for function in functions))
    variables = [v for v in program.variables.values() if v.space == "shared" and v.name in named]
    variables += [v for function in functions for v in function.variables if v.space == "shared"]
    places: dict[Variable, int] = {}
    size = 0
    for variable in variables:
        if variable.size:
            places[variable] = -(-size // variable.align) * variable.align
            size = places[variable] + variable.size
    dynamic = [v for v in variables if not v.size]
    align = max(16, *(v.align for v in dynamic)) if dynamic else 16
    start = -(-size // align) * align if dynamic or dynamic_bytes else size
    places |= dict.fromkeys(dynamic, start)
    return places, start + dynamic_bytes


def _grains(functions: list[Function]) -> tuple[int, int]:
    """Return the narrowest access to shared and to global memory, in bytes."""
    shared = global_ = 16
    for function in functions:
        for instruction in function.code:
            parts = instruction.parts
            if parts[0] == "mbarrier":
                shared = min(shared, 8)
            if parts[0] not in ("ld", "st", "atom", "red", "cp", "ldu", "wmma"):
                continue
            if "bulk" in parts:  # those that reduce do so by element
                global_ = min(global_, 2 if "tensor" in parts or "reduce" in parts else 8)
                continue
            if parts[0] == "cp":
                shared, global_ = min(shared, 4), min(global_, 1 if len(instruction.operands) > 3 else 4)
                continue
            size = min(16, type_bytes(parts[-1])) if parts[0] != "wmma" else 1
            space = space_of(parts)
            if space in ("shared", "cluster", ""):
                shared = min(shared, size)
            if space in ("global", ""):
                global_ = min(global_, size)
    return shared, global_


def _in_clusters(blocks: tuple[int, ...] | None, grid: Triple, cluster: Triple | None) -> NDArray[np.int64]:
    """Return the linear numbers of the blocks to run, a row for each cluster; clusters are never divided."""
    size = cluster or (1, 1, 1)
    numbers = np.arange(prod(grid), dtype=np.int64).reshape(grid[::-1])
    tiles = [part for extent, each in zip(grid[::-1], size[::-1], strict=True) for part in (extent // each, each)]
    rows = numbers.reshape(tiles).transpose(0, 2, 4, 1, 3, 5).reshape(-1, prod(size))
    return rows if blocks is None else rows[np.isin(rows, blocks).any(axis=1)]


def _spin_sites(function: Function) -> list[int]:
    """Return the positions of instructions with which a loop may wait for another thread."""
    words = {"volatile", "relaxed", "acquire", "mmio"}
    return [
        number
        for number, instruction in enumerate(function.code)
        if instruction.parts[0] == "atom"
        or instruction.parts[:2] == ("mbarrier", "test_wait")
        or (instruction.parts[0] == "ld" and not words.isdisjoint(instruction.parts))
    ]
