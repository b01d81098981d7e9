"""Counts a run's costs at source lines, with the definitions of the hardware counters.

Worker-only: imports numpy. A request is one memory instruction of one warp. Sectors of global memory are 32 bytes
(`l1tex__t_sectors_pipe_lsu_mem_global_op_ld/st`). Shared memory has 32 banks of 4 bytes; lanes are served in passes,
one for a warp with up to 4 bytes a lane, one for each half or quarter of it with 8 or 16 bytes; each further pass is a
conflict (`l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld/st`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.lanes import WARP, Lanes
from kernel_lsp.emulate.program import Location, PtxInstruction

Array: TypeAlias = NDArray[Any]

SECTOR = 32
_BANKS = 32
_BANK_BYTES = 4


@dataclass(slots=True)
class Counters:
    """Sums over the instructions of one source line, or of a whole run.

    Attributes:
        instructions: executed by warps.
        lane_instructions: executed by threads.
        working_lanes: likewise if all threads of these warps had taken part but those that had left for want of work.
        branches: conditional branches executed by warps.
        divergent_branches: those at which a warp split.
        load_requests, load_sectors, load_ideal_sectors: of global memory; ideal: the sectors for the
            same bytes if they were adjacent.
        store_requests, store_sectors, store_ideal_sectors: likewise.
        atomic_requests: of global memory.
        bytes_read, bytes_written: requested from global memory by all threads.
        shared_load_requests, shared_load_wavefronts, shared_load_conflicts: passes over the banks and those beyond
            the necessary.
        shared_store_requests, shared_store_wavefronts, shared_store_conflicts: likewise.
    """

    instructions: int = 0
    lane_instructions: int = 0
    working_lanes: int = 0
    branches: int = 0
    divergent_branches: int = 0
    load_requests: int = 0
    load_sectors: int = 0
    load_ideal_sectors: int = 0
    store_requests: int = 0
    store_sectors: int = 0
    store_ideal_sectors: int = 0
    atomic_requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    shared_load_requests: int = 0
    shared_load_wavefronts: int = 0
    shared_load_conflicts: int = 0
    shared_store_requests: int = 0
    shared_store_wavefronts: int = 0
    shared_store_conflicts: int = 0

    def add_bytes(self, access: str, amount: int) -> None:
        """Add bytes that a `load` from global memory, or else a store, asked for."""
        if access == "load":
            self.bytes_read += amount
        else:
            self.bytes_written += amount

    def add_sectors(self, access: str, requests: int, sectors: int, ideal: int) -> None:
        """Add requests of global memory, with their sectors and the least of these."""
        if access == "load":
            self.load_requests += requests
            self.load_sectors += sectors
            self.load_ideal_sectors += ideal
        else:
            self.store_requests += requests
            self.store_sectors += sectors
            self.store_ideal_sectors += ideal

    def add(self, other: Counters) -> None:
        """Add another's counts."""
        for name in _NAMES:
            if more := getattr(other, name):
                setattr(self, name, getattr(self, name) + more)


_NAMES = tuple(each.name for each in fields(Counters))


@dataclass(slots=True)
class Site:
    """One static instruction and its counts.

    Attributes:
        approximate: True if a GPU's result may differ a little.
        call: for an instruction that always stands in a wrapper, the kernel's call of that; see `calls_of`.
    """

    instruction: PtxInstruction
    index: int
    function: str
    approximate: bool = False
    call: Location | None = None
    counters: Counters = field(default_factory=Counters)

    @property
    def location(self) -> Location | None:
        """Return the source line it came from."""
        return self.instruction.location

    @property
    def place(self) -> Location | None:
        """Return the line to name in a message."""
        return self.call or self.location


def calls_of(instructions: Sequence[PtxInstruction]) -> list[Location | None]:
    """Return for each instruction of mbarriers, products or bulk copies the outermost call that holds only one kind.

    That is the kernel's call of a wrapper around such an instruction. A call that stands for waiting and copying alike
    is no wrapper: it is the body of a kernel that a library has in another file. One that announces bytes and copies
    them, as `cuda::memcpy_async` does, is one if no smaller one is called in the kernel's own file. None for all other
    instructions.
    """
    chains: list[tuple[Location, ...]] = [each.location.chain if each.location else () for each in instructions]
    kinds = [_wrapped(instruction) for instruction in instructions]
    joint = ["cp" if "expect_tx" in each.parts else kind for each, kind in zip(instructions, kinds, strict=True)]
    found = zip(chains, _outermost(chains, kinds), _outermost(chains, joint), strict=True)
    return [
        wider if wider and narrow and narrow.file != chain[-1].file == wider.file else narrow
        for chain, narrow, wider in found
    ]


def _outermost(chains: Sequence[tuple[Location, ...]], kinds: Sequence[str]) -> list[Location | None]:
    """Return for each instruction with a kind the outermost place of its chain that stands for this kind alone."""
    held: dict[Location, set[str]] = {}
    for kind, chain in zip(kinds, chains, strict=True):
        for place in chain if kind else ():
            held.setdefault(place, set()).add(kind)
    return [
        replace(next((place for place in reversed(chain) if len(held[place]) == 1), chain[0]), inlined_at=None)
        if kind and chain
        else None
        for kind, chain in zip(kinds, chains, strict=True)
    ]


def _wrapped(instruction: PtxInstruction) -> str:
    """Return the kind of an instruction that code has no other way to than a wrapper; empty for any other."""
    parts = instruction.parts
    if "bulk" in parts[:4] or (parts[0] in ("st", "red") and "async" in parts):
        return "cp"
    return parts[0] if parts[0] in ("mbarrier", "wgmma") else ""


@dataclass(frozen=True, slots=True)
class RunCounters:
    """The counts of one run.

    Attributes:
        total: over all lines.
        lines: by source line, those inlined into different places apart.
        opcodes: instructions executed by warps, by the first word of the opcode.
        least_bytes_read, least_bytes_written: distinct bytes of global memory touched, the least possible
            traffic. Counted if memory is checked.
    """

    total: Counters
    lines: dict[Location | None, Counters]
    opcodes: dict[str, int]
    least_bytes_read: int = 0
    least_bytes_written: int = 0


def summed(sites: Iterable[Site], least_read: int, least_written: int) -> RunCounters:
    """Return the counts of instructions, summed by line and opcode."""
    total, lines, opcodes = Counters(), dict[Location | None, Counters](), dict[str, int]()
    for site in sites:
        if not site.counters.instructions:
            continue
        total.add(site.counters)
        lines.setdefault(site.location, Counters()).add(site.counters)
        word = site.instruction.opcode.partition(".")[0]
        opcodes[word] = opcodes.get(word, 0) + site.counters.instructions
    return RunCounters(total, lines, opcodes, least_read, least_written)


def by_warp(value: Array, lanes: Lanes) -> tuple[Array, Array, int]:
    """Return the elements of a value arranged by warp.

    Returns:
        (warps, 32) elements, where a thread that takes no part has the element of one that does; (warps, 32) bool, who
        takes part; how many times each warp stands for (rows that are all alike are arranged once).
    """
    extent = lanes.extent
    padded = -(-extent[1] // WARP) * WARP
    alike = value.shape[0] == 1 and lanes.mask is None
    times = lanes.shape[0] if alike else 1
    rows = 1 if alike else lanes.shape[0]
    if lanes.mask is None and lanes.shape[1] == extent[1] == padded:
        whole = np.broadcast_to(value, (rows, padded)).reshape(-1, WARP)
        return whole, np.ones(whole.shape, np.bool_), times
    active = np.zeros((rows, padded), np.bool_)
    active[:, lanes.columns] = True if lanes.mask is None else lanes.mask
    spread = np.zeros((rows, padded), value.dtype)
    spread[:, lanes.columns] = value
    active, spread = active.reshape(-1, WARP), spread.reshape(-1, WARP)
    some = active.any(axis=1)
    if not some.all():
        active, spread = active[some], spread[some]
    first = np.take_along_axis(spread, active.argmax(axis=1)[:, None], axis=1)
    return np.where(active, spread, first), active, times


def sectors(addresses: Array, size: int, lanes: Lanes) -> tuple[int, int, int]:
    """Return requests, sectors and ideal sectors of accesses of `size` bytes at `addresses`, read for these lanes."""
    if addresses.size == 1 and lanes.mask is None:
        return lanes.warps, lanes.warps, lanes.warps
    warps, active, times = by_warp(addresses >> 5, lanes)
    rising = warps[:, 1:] >= warps[:, :-1]
    if not rising.all():
        warps = np.sort(warps, axis=1)
    distinct = int(np.count_nonzero(warps[:, 1:] != warps[:, :-1])) + len(warps)
    asked = active.sum(axis=1) * size
    ideal = int((-(-asked // SECTOR)).sum())
    return len(warps) * times, distinct * times, ideal * times


def wavefronts(addresses: Array, size: int, lanes: Lanes) -> tuple[int, int, int]:
    """Return requests, passes and conflicts of shared-memory accesses of `size` bytes at byte `addresses`."""
    if addresses.size == 1 and lanes.mask is None:
        return lanes.warps, lanes.warps, 0
    warps, active, times = by_warp(addresses >> 2, lanes)
    requests = len(warps)
    words = max(1, size // _BANK_BYTES)
    if words > 1:
        warps = warps.reshape(-1, WARP // words)
        active = active.reshape(-1, WARP // words)
        some = active.any(axis=1)
        warps, active = warps[some], active[some]
        first = np.take_along_axis(warps, active.argmax(axis=1)[:, None], axis=1)
        warps = (np.where(active, warps, first)[:, :, None] + np.arange(words)).reshape(len(warps), -1)
    passes = len(warps)
    wide = warps.max(axis=1) - warps.min(axis=1) >= _BANKS
    total = passes - int(np.count_nonzero(wide))
    if wide.any():
        total += int(_passes(warps[wide]).sum())
    return requests * times, total * times, (total - passes) * times


def _passes(words: Array) -> Array:
    """Return for each row of (n, 32) word indices the most distinct words in one bank."""
    words = words.astype(np.int64)
    key = np.sort((words % _BANKS) << 32 | words // _BANKS, axis=1)
    fresh = np.ones(key.shape, np.bool_)
    fresh[:, 1:] = key[:, 1:] != key[:, :-1]
    cell = (key >> 32) + np.arange(len(key))[:, None] * _BANKS
    return np.bincount(cell[fresh], minlength=len(key) * _BANKS).reshape(-1, _BANKS).max(axis=1)
