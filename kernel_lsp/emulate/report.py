"""What emulated runs of a workload tell: findings and counters at source lines, and how far the outputs were off.

Light and free of numpy: workers make these records, the parent reads them.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import TypeAdapter


class Kind(StrEnum):
    """What is wrong with a program that an emulated run has shown."""

    OUT_OF_BOUNDS = "out-of-bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED_GLOBAL = "uninitialised-global"
    UNINITIALISED_SHARED = "uninitialised-shared"
    SHARED_RACE = "shared-race"
    ASYNC_RACE = "async-race"
    GLOBAL_RACE = "global-race"
    DIVERGENT_BARRIER = "divergent-barrier"
    INACTIVE_LANE = "inactive-lane"
    DEADLOCK = "deadlock"
    RUNAWAY = "runaway"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong at a line of the user's file, once for each line, kind and kernel.

    Attributes:
        kind: what is wrong.
        path: the user's file, as the compiler names it.
        line: from 1; 0 where the machine code names no line.
        message: one sentence with the values that matter.
        kernel: the kernel's name in its launch.
        values: of the first occurrence: `address`, `buffer`, `index`, `thread`, `block` and the like, where they apply.
        count: how many lanes met it, over all instructions of the line.
        column: from 1, where the compiler gives one.
    """

    kind: Kind
    path: str
    line: int
    message: str
    kernel: str
    values: dict[str, int | str] = field(default_factory=dict[str, int | str])
    count: int = 1
    column: int | None = None


@dataclass(frozen=True, slots=True)
class LineCounters:
    """What the instructions of one source line did, summed over a kernel's emulated launches.

    A request is one memory instruction of one warp. Sectors are 32 bytes; `ideal` is what the bytes asked for would
    take if they lay side by side. Wavefronts are the passes over the banks of shared memory.
    """

    kernel: str
    path: str
    line: int
    instructions: int = 0
    divergent_branches: int = 0
    load_requests: int = 0
    load_sectors: int = 0
    load_ideal_sectors: int = 0
    store_requests: int = 0
    store_sectors: int = 0
    store_ideal_sectors: int = 0
    shared_load_requests: int = 0
    shared_load_conflicts: int = 0
    shared_store_requests: int = 0
    shared_store_conflicts: int = 0


@dataclass(frozen=True, slots=True)
class KernelTotals:
    """One kernel over its emulated launches.

    Attributes:
        kernel: its name in the launch.
        launches: how many.
        warp_instructions: executed by warps.
        lane_instructions: executed by threads.
        bytes_read: bytes that loads from global memory asked for.
        bytes_written: bytes that stores to global memory wrote.
        bytes_touched_reading: different bytes among `bytes_read`: the least that has to be moved.
        bytes_touched_writing: different bytes among `bytes_written`.
    """

    kernel: str
    launches: int
    warp_instructions: int
    lane_instructions: int
    bytes_read: int
    bytes_written: int
    bytes_touched_reading: int
    bytes_touched_writing: int


@dataclass(frozen=True, slots=True)
class NeedsGpuReason:
    """Why a run cannot be emulated: the machine instruction or what else is missing, and the line that asks for it."""

    what: str
    line: int | None = None
    path: str | None = None

    def __str__(self) -> str:
        """`wgmma.mma_async at line 12`."""
        return self.what + (f" at line {self.line}" if self.line else "")


@dataclass(frozen=True, slots=True)
class EmulatedRun:
    """One run of a workload's `launch` on the emulator, on one set of inputs.

    Attributes:
        case: the case as a person would write it.
        family: the family of its inputs.
        findings: what went wrong, by line.
        counters: what memory and branches cost, by line; empty where the run did not count.
        totals: what each kernel did.
        launches: how many kernels were launched.
        seconds: wall time in the worker.
        needs_gpu: set where it could not be emulated; everything else is then empty.
    """

    case: str
    family: str
    findings: tuple[Finding, ...] = ()
    counters: tuple[LineCounters, ...] = ()
    totals: tuple[KernelTotals, ...] = ()
    launches: int = 0
    seconds: float = 0.0
    needs_gpu: NeedsGpuReason | None = None


RUN = TypeAdapter(EmulatedRun)
