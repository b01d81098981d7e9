"""The profile of a kernel file: what each line of its kernels executes and moves, and where its warps wait on the GPU.

The emulator counts what is executed and moved: exactly, the same on any machine, on the small cases that a check runs.
That says nothing of time: a line with many instructions may hide behind another that waits for memory. Where there is a
GPU, its warps are sampled on a large case, or lines are left out and the time that is saved is taken
(`check/gpu_lines.py`): that is where the time goes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.check.counts import counts_by_line
from kernel_lsp.check.gpu_lines import GpuLines
from kernel_lsp.check.ncu import top_reason
from kernel_lsp.check.pipelines import Pipeline, pipeline_of
from kernel_lsp.check.priced import KernelPrices, LinePrice
from kernel_lsp.check.record import FileReport
from kernel_lsp.check.sampled import LineKey
from kernel_lsp.device.device import Device
from kernel_lsp.judge.emulation import EmulatedRun
from kernel_lsp.rules.correctness import BROKEN_WORKLOAD
from kernel_lsp.source.kernel import base_name

LEAST_SHARE = 0.03
"""Share of a kernel's instructions, traffic or samples below which a line is not shown. Chosen."""


@dataclass(frozen=True, slots=True)
class LineProfile:
    """The counts of one line over all emulated runs of a kernel, and its samples on the GPU.

    Attributes:
        path: its file; empty where the compiler ascribes instructions to no line.
        line: its number, from 1; 0 likewise.
        text: the line, without the spaces around it; empty if it is of another file.
        instruction_share: of the kernel's instructions, as warps execute them.
        traffic_share: of the sectors that the kernel's loads and stores of global memory ask for; 0 if it has none.
        active_share: of the lanes of its warps, how many take part; 1 if it executes nothing.
        counts: by the names of `LineCounters`; empty if the emulator did not see the line.
        samples: how many samples found a warp at it.
        sample_share: of the kernel's samples; 0 if there are none.
        waits_for: the commonest thing that its samples waited for, in plain words; empty likewise.
        wait_share: the share of those among its samples.
        price: the share of the kernel's time that is saved where some work of the line is left out; None if unknown.
        priced: that work: the dearest of the line, as `loads` or `loop`; empty likewise.
    """

    path: str
    line: int
    text: str
    instruction_share: float
    traffic_share: float
    active_share: float
    counts: dict[str, int]
    samples: int = 0
    sample_share: float = 0.0
    waits_for: str = ""
    wait_share: float = 0.0
    price: float | None = None
    priced: str = ""

    @property
    def is_costly(self) -> bool:
        """True if it has `LEAST_SHARE` or more of the kernel's instructions, traffic or samples, or costs as much."""
        shares = (self.instruction_share, self.traffic_share, self.sample_share, self.price or 0.0)
        return max(shares) >= LEAST_SHARE


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One kernel.

    Attributes:
        kernel: its name, without template arguments.
        launches: number of those that were emulated.
        blocks: of these launches.
        lines: in order of files and numbers.
        samples: of all lines.
        us: time of the launch whose lines were priced, in microseconds; 0 if they were not.
        pipeline: its stages of bulk copies and its warps' registers; None if the emulator saw neither.
    """

    kernel: str
    launches: int
    blocks: int
    lines: tuple[LineProfile, ...]
    samples: int = 0
    us: float = 0.0
    pipeline: Pipeline | None = None


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
        device: the GPU on which lines were measured; empty if they were not.
        gpu_case: the case that was launched there.
        not_sampled: why no warps were sampled there; empty otherwise, and where there is no GPU.
        not_priced: why no line has a price, where that was wanted.
    """

    path: Path
    arch: str
    counted_by: str
    cases: tuple[str, ...]
    kernels: tuple[KernelProfile, ...]
    problem: str = ""
    device: str = ""
    gpu_case: str = ""
    not_sampled: str = ""
    not_priced: str = ""


def profile_of(report: FileReport, text: str, device: Device, gpu: GpuLines | None = None) -> FileProfile:
    """Return the profile of a file from the report of its check on a device, and what its GPU told, if there is one."""
    runs = report.emulation.runs if report.emulation else ()
    cases = tuple(dict.fromkeys(run.case for run in runs))
    told = gpu or GpuLines()
    kernels = tuple(_kernels(report, text, runs, told, device))
    return FileProfile(
        report.path,
        report.arch,
        "emulator",
        cases,
        kernels,
        "" if cases else _problem(report),
        told.device,
        told.case,
        told.not_sampled,
        told.not_priced,
    )


def _problem(report: FileReport) -> str:
    if (broken := next((d for d in report.diagnostics if d.code == BROKEN_WORKLOAD.id), None)) is not None:
        return f"{broken.path}:{broken.line}: {broken.message.rstrip('.')}"
    if not report.workloads:
        return f"it has no workload, and so nothing was run: `kernel-lsp draft {report.path} --write` makes a first one"
    if report.emulation is not None and report.emulation.needs_gpu is not None:
        return report.emulation.needs_gpu.reason
    return "none of its kernels was run on the emulator; `kernel-lsp check` says why"


def _kernels(
    report: FileReport, text: str, runs: Sequence[EmulatedRun], gpu: GpuLines, device: Device
) -> Iterator[KernelProfile]:
    path, totals = report.path, [total for run in runs for total in run.totals]
    launches, blocks = Counter[str](), Counter[str]()
    for total in totals:
        launches[base_name(total.kernel)] += total.launches
        blocks[base_name(total.kernel)] += total.blocks
    by_line = counts_by_line(runs)
    seen = {one.kernel: one.lines for one in gpu.samples}
    priced = {one.kernel: _dearest(path, one) for one in gpu.prices}
    times = {one.kernel: one.us for one in gpu.prices}
    for kernel in sorted({*by_line, *seen, *priced}):
        found = by_line.get(kernel, {}), seen.get(kernel, {}), priced.get(kernel, {})
        lines = tuple(_lines(path, text, *found))
        samples = sum(line.samples for line in lines)
        counted = launches[kernel], blocks[kernel], lines, samples, times.get(kernel, 0.0)
        pipeline = pipeline_of(kernel, totals, report.resources, device)
        yield KernelProfile(kernel, *counted, pipeline if pipeline.rings or pipeline.registers else None)


def _dearest(path: Path, kernel: KernelPrices) -> dict[LineKey, LinePrice]:
    """Return for each line the work that costs most."""
    return {(str(path.absolute()), one.line): one for one in sorted(kernel.lines, key=lambda one: one.share)}


def _lines(
    path: Path,
    text: str,
    counted: Mapping[LineKey, Counter[str]],
    seen: Mapping[LineKey, Counter[str]],
    priced: Mapping[LineKey, LinePrice],
) -> Iterator[LineProfile]:
    own, texts = path.resolve(), text.splitlines()
    instructions = sum(counts["instructions"] for counts in counted.values()) or 1
    sectors = sum(map(_sectors, counted.values())) or 1
    samples = sum(one.total() for one in seen.values()) or 1
    for file, line in sorted({*counted, *seen, *priced}):
        counts, stalls = counted.get((file, line), Counter()), seen.get((file, line), Counter())
        is_own = bool(file) and Path(file).resolve() == own and 0 < line <= len(texts)
        reason, waiting = top_reason(stalls)
        price = priced.get((file, line))
        yield LineProfile(
            file,
            line,
            texts[line - 1].strip() if is_own else "",
            counts["instructions"] / instructions,
            _sectors(counts) / sectors,
            counts["lane_instructions"] / counts["working_lanes"] if counts["working_lanes"] else 1.0,
            dict(counts),
            stalls.total(),
            stalls.total() / samples,
            reason,
            waiting / stalls.total() if stalls else 0.0,
            price.share if price else None,
            price.what if price else "",
        )


def _sectors(counts: Counter[str]) -> int:
    return counts["load_sectors"] + counts["store_sectors"]
