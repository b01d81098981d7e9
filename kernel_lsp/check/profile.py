"""The profile of a kernel file: what each line of its kernels executes and moves, as the emulator counts it.

Counts are exact and the same on any machine. They are of the small cases that a check emulates, and say nothing of
time: a line with many instructions may hide behind another that waits for memory.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.check.counts import counts_by_line
from kernel_lsp.check.record import FileReport
from kernel_lsp.judge.emulation import EmulatedRun
from kernel_lsp.source.kernel import base_name

LEAST_SHARE = 0.03
"""Share of a kernel's instructions or traffic below which a line is not shown. Chosen: a screen holds the others."""


@dataclass(frozen=True, slots=True)
class LineProfile:
    """The counts of one line over all emulated runs of a kernel.

    Attributes:
        path: its file; empty where the compiler ascribes instructions to no line.
        line: its number, from 1; 0 likewise.
        text: the line, without the spaces around it; empty if it is of another file.
        instruction_share: of the kernel's instructions, as warps execute them.
        traffic_share: of the sectors that the kernel's loads and stores of global memory ask for; 0 if it has none.
        active_share: of the lanes of its warps, how many take part; 1 if it executes nothing.
        counts: by the names of `LineCounters`.
    """

    path: str
    line: int
    text: str
    instruction_share: float
    traffic_share: float
    active_share: float
    counts: dict[str, int]

    @property
    def is_costly(self) -> bool:
        """True if it has `LEAST_SHARE` or more of the kernel's instructions or traffic."""
        return max(self.instruction_share, self.traffic_share) >= LEAST_SHARE


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One kernel: launches and blocks that were emulated, and its lines in order of files and numbers."""

    kernel: str
    launches: int
    blocks: int
    lines: tuple[LineProfile, ...]


@dataclass(frozen=True, slots=True)
class FileProfile:
    """The profile of one file.

    Attributes:
        path: the file.
        arch: the architecture that it was compiled for.
        counted_by: who counted: the emulator.
        cases: those that ran, each as a person would write it.
        kernels: in the order of their names.
        problem: why nothing was counted; empty otherwise.
    """

    path: Path
    arch: str
    counted_by: str
    cases: tuple[str, ...]
    kernels: tuple[KernelProfile, ...]
    problem: str = ""


def profile_of(report: FileReport, text: str) -> FileProfile:
    """Return the profile of a file from the report of its check."""
    runs = report.emulation.runs if report.emulation else ()
    cases = tuple(dict.fromkeys(run.case for run in runs))
    kernels = tuple(_kernels(report.path, text, runs))
    return FileProfile(report.path, report.arch, "emulator", cases, kernels, "" if kernels else _problem(report))


def _problem(report: FileReport) -> str:
    if not report.workloads:
        return "it has no workload, and so nothing was run"
    if report.emulation is not None and report.emulation.needs_gpu is not None:
        return report.emulation.needs_gpu.reason
    return "none of its kernels was run on the emulator; `kernel-lsp check` says why"


def _kernels(path: Path, text: str, runs: Sequence[EmulatedRun]) -> Iterator[KernelProfile]:
    launches, blocks = Counter[str](), Counter[str]()
    for total in (total for run in runs for total in run.totals):
        launches[base_name(total.kernel)] += total.launches
        blocks[base_name(total.kernel)] += total.blocks
    own, texts = path.resolve(), text.splitlines()
    for kernel, counted in sorted(counts_by_line(runs).items()):
        instructions = sum(counts["instructions"] for counts in counted.values()) or 1
        sectors = sum(map(_sectors, counted.values())) or 1
        profiles: list[LineProfile] = []
        for (file, line), counts in sorted(counted.items()):
            is_own = bool(file) and Path(file).resolve() == own and 0 < line <= len(texts)
            profiles.append(
                LineProfile(
                    file,
                    line,
                    texts[line - 1].strip() if is_own else "",
                    counts["instructions"] / instructions,
                    _sectors(counts) / sectors,
                    counts["lane_instructions"] / counts["working_lanes"] if counts["working_lanes"] else 1.0,
                    dict(counts),
                )
            )
        yield KernelProfile(kernel, launches[kernel], blocks[kernel], tuple(profiles))


def _sectors(counts: Counter[str]) -> int:
    return counts["load_sectors"] + counts["store_sectors"]
