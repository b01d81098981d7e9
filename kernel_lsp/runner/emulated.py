"""Records of emulated launches that a worker without a GPU sends to the parent; nothing here imports numpy."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EmulatedFinding:
    """A fault at a line of the user's file, reported once for each line, kind, buffer and kernel.

    Attributes:
        kind: one of `emulate.findings.FindingKind`: `out-of-bounds`, `misaligned`, `uninitialised`, `shared-race`,
            `global-race`, `divergent-barrier`, `inactive-lane`, `deadlock`, `runaway-loop`, `trap`, `unawaited-copy`,
            `overwritten-stage`, `transaction-bytes`, `missing-proxy-fence`, `misused-mbarrier`,
            `mismatched-swizzle`, `unawaited-product`.
        message: one sentence with the values that matter.
        path: the user's file, as the compiler names it; empty where the machine code names no place.
        line: from 1; 0 where the machine code names no place.
        kernel: the kernel's name in its launch.
        column: from 1; None where the compiler gives none.
        space: `global`, `shared`, `local` or `const`, if it is about memory.
        access: `read`, `write` or `atomic`, if it is about memory.
        values: of the first occurrence: `buffer`, `address`, `index`, `size`, `thread`, `block`, where they apply.
        other: (path, line) of the other access of a race, if known.
        count: how many times a thread did it.
    """

    kind: str
    message: str
    path: str
    line: int
    kernel: str
    column: int | None = None
    space: str | None = None
    access: str | None = None
    values: dict[str, int | str] = field(default_factory=dict[str, int | str])
    other: tuple[str, int] | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class LineCounters:
    """Counts of the instructions of one source line, summed over a kernel's emulated launches.

    A request is one memory instruction of one warp. Sectors are 32 bytes; ideal ones are what the bytes asked for
    would take if they lay side by side. A wavefront is a pass over the banks of shared memory; a conflict is one more
    than the least. Working lanes are what the lane instructions would be if all threads of these warps had taken part,
    but for those that left before the kernel's first access of memory. `path` is empty and `line` 0 for what the
    machine code ascribes to no place.
    """

    kernel: str
    path: str
    line: int
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


@dataclass(frozen=True, slots=True)
class FilledRing:
    """The mbarriers to which one line announces the bytes of copies: the stages of a pipeline.

    Attributes:
        path, line: of the announcement, as those of a finding.
        stages: their number.
        stage_bytes: the most that one phase brings.
        fills: phases that brought bytes, in all blocks.
    """

    path: str
    line: int
    stages: int
    stage_bytes: int
    fills: int


@dataclass(frozen=True, slots=True)
class WarpRegisters:
    """The registers that a line gives to warps (`setmaxnreg`): for each thread, and to how many warps of all blocks."""

    path: str
    line: int
    registers: int
    warps: int


@dataclass(frozen=True, slots=True)
class KernelTotals:
    """One kernel over its emulated launches; the lines of `EmulatedRun.counters` say what makes up the rest.

    Attributes:
        kernel: its name in the launch.
        launches: how many.
        blocks: of all launches.
        opcodes: instructions executed by warps, by the first word of their PTX opcode (`fma`, `ld`, `bar`).
        least_bytes_read: different bytes of global memory read in a launch: what has to be moved at least.
        least_bytes_written: likewise.
        approximate: whether units whose last bits differ from a GPU's took part.
        rings: the stages of its pipelines.
        registers: of warps that took or gave up some.
    """

    kernel: str
    launches: int
    blocks: int
    opcodes: dict[str, int]
    least_bytes_read: int
    least_bytes_written: int
    approximate: bool
    rings: tuple[FilledRing, ...] = ()
    registers: tuple[WarpRegisters, ...] = ()


@dataclass(frozen=True, slots=True)
class EmulatedReport:
    """All launches of one run of a workload's `launch` on the emulator.

    Attributes:
        findings: what went wrong, by line.
        counters: what memory and branches cost, by line.
        totals: what each kernel did.
        seconds: processor time in the worker.
        computed: operations of torch that computed something from tensors as large as the inputs.
    """

    findings: tuple[EmulatedFinding, ...]
    counters: tuple[LineCounters, ...]
    totals: tuple[KernelTotals, ...]
    seconds: float
    computed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SampledLaunch:
    """One launch of which only a few blocks were run.

    Attributes:
        kernel: its name in the launch.
        blocks: linear numbers of the blocks that were run; x counts fastest.
        grid_blocks: of the whole launch.
        instructions: executed, once for all threads that did so together.
        ended: why the blocks did not run to their end; None where they did.
    """

    kernel: str
    blocks: tuple[int, ...]
    grid_blocks: int
    instructions: int
    ended: str | None


@dataclass(frozen=True, slots=True)
class SampledRun:
    """A run of a workload's `launch` in which each launch ran only a few blocks; its outputs are meaningless.

    Attributes:
        findings: what went wrong, whatever the blocks that were left out do.
        launches: in order.
        counters: what memory and branches cost in the blocks that were run, by line.
        totals: what each kernel did in them.
        ended: why `launch` did not run to its end; None where it did.
        seconds: processor time in the worker.
    """

    findings: tuple[EmulatedFinding, ...]
    launches: tuple[SampledLaunch, ...]
    ended: str | None
    seconds: float
    counters: tuple[LineCounters, ...] = ()
    totals: tuple[KernelTotals, ...] = ()
