"""`check`: everything that can be said of kernel files as they stand: they compile, they run, they are right.

With a GPU all of it; without one kernels run on the emulator, on small cases.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_lsp.build.binary import Diagnostic, Severity
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.errors import CannotJudgeError, KernelLspError, SourceError
from kernel_lsp.judge import correctness
from kernel_lsp.judge.bench import Bench
from kernel_lsp.judge.building import Builders, arch_of
from kernel_lsp.judge.emulation import Emulation, NeedsGpu
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Check, KernelResources
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels, language_of, read_source
from kernel_lsp.source.kernel import Language
from kernel_lsp.workload.spec import find_workload

_SUFFIXES = (".cu", ".cuh", ".py")
_AT_ONCE = 2


@dataclass
class FileReport:
    """What is known of one kernel file.

    Attributes:
        path: the file.
        language: CUDA or Triton.
        arch: the architecture it was built for.
        kernels: names of its kernels.
        diagnostics: what is wrong or doubtful, with the place in the user's file; errors make the check fail.
        checks: what was checked on its runs, and what was skipped and why.
        resources: compile facts of the kernels the workload launches.
        workload: its workload file, if it has one.
        emulation: what its runs on the emulator showed, where there is no GPU; None where nothing was run.
        seconds: wall time.
    """

    path: Path
    language: Language
    arch: str
    kernels: tuple[str, ...]
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    checks: list[Check] = field(default_factory=list[Check])
    resources: tuple[KernelResources, ...] = ()
    workload: Path | None = None
    emulation: Emulation | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(d.severity is not Severity.ERROR for d in self.diagnostics)


def find_kernel_files(paths: Sequence[Path]) -> tuple[SourceFile, ...]:
    """The kernel files among `paths` and below the folders among them; Python files count when they hold kernels.

    Raises:
        SourceError: a path does not exist or a file named cannot be read, or there is no kernel in any of them.
    """
    files: dict[Path, SourceFile] = {}
    for path in paths:
        below = sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file()) if path.is_dir() else [path]
        for file in below:
            hidden = any(part.startswith(".") for part in file.relative_to(path).parts) if path.is_dir() else False
            if hidden or file in files:
                continue
            try:
                source = read_source(file)
            except SourceError:
                if path.is_dir():  # nobody named this one
                    continue
                raise
            if language_of(file, source.text) is not None and find_kernels(source.text, file):
                files[file] = source
    if not files:
        named = ", ".join(str(p) for p in paths)
        raise SourceError(
            f"no kernel was found in {named}", cure="Name .cu, .cuh or Triton .py files, or their folder."
        )
    return tuple(files.values())


async def check(
    sources: Sequence[SourceFile],
    settings: Settings,
    on_report: Callable[[FileReport], None] = lambda _: None,
    *,
    workload: Path | None = None,
    run: bool = True,
) -> list[FileReport]:
    """Check kernel files; `on_report` hears of each as it is done. `run` False stops after building.

    Raises:
        RunnerError: workers cannot be started.
    """
    gpu = next(iter(find_gpus()), None)
    room = asyncio.Semaphore(_AT_ONCE)
    async with Pool(gpu.uuid if gpu else None) as pool:
        builders = Builders(pool, settings, arch_of(gpu, settings))

        async def one(source: SourceFile) -> FileReport:
            async with room:
                started = time.perf_counter()
                report = await _check_file(source, settings, pool, builders, gpu, workload, run)
                report.seconds = time.perf_counter() - started
                on_report(report)
                return report

        return list(await asyncio.gather(*(one(source) for source in sources)))


async def _check_file(
    source: SourceFile,
    settings: Settings,
    pool: Pool,
    builders: Builders,
    gpu: Gpu | None,
    explicit: Path | None,
    run: bool,
) -> FileReport:
    language = language_of(source.path, source.text)
    assert language is not None, "only kernel files are checked"
    kernels = find_kernels(source.text, source.path)
    report = FileReport(source.path, language, builders.arch, tuple(k.name for k in kernels))
    try:
        workload = find_workload(source, explicit)
        report.workload = workload.source.path if workload else None
        if workload is None:
            candidate = Candidate(language, source, None, "baseline", "baseline")
            report.diagnostics.append(_note(report, "it has no workload: it was compiled, not run"))
            target = None
        else:
            target = Target(language, source, kernels, None, workload)
            candidate = target.baseline
        built = await builders.build(workload, candidate)
        report.diagnostics += built.build.diagnostics
        report.resources = resources_of(built)
        if target is not None and built.ok and run:
            bench = Bench(pool, target, settings, builders, gpu)
            try:
                await bench.open()
                subject = await bench.enter(candidate, built)
                yard = await correctness.measure_baseline(bench, subject)
                _take_over(report, yard)
                if gpu is None:
                    report.emulation = Emulation(tuple(yard.findings.runs))
            except CannotJudgeError as error:
                if gpu is not None:
                    raise
                await _rehearse(bench, report, error)
            finally:
                await bench.close()
    except correctness.RUN_ERRORS as error:
        report.diagnostics.append(_problem(report, error))
    return report


async def _rehearse(bench: Bench, report: FileReport, error: CannotJudgeError) -> None:
    """Run the reference on the smallest case, so that at least the workload is known to work; `error` says why."""
    sizes: list[int] = await bench.oracle("sizes")
    draw = await bench.draw(min(range(len(sizes)), key=lambda case: sizes[case]), "normal")
    await bench.oracle("rehearse", key=draw.key)
    findings = correctness.Findings()
    findings.passed("workload", "its inputs and reference run", bench.cases[draw.case])
    findings.skipped("run", error.message)
    report.checks += findings.checks
    report.emulation = Emulation((), NeedsGpu(error.message, str(error.path) if error.path else None, error.line))


def _take_over(report: FileReport, yard: correctness.Yardstick) -> None:
    findings = yard.findings
    for draw in yard.draws:
        findings.passed(f"inputs: {draw.family}")
    report.checks += findings.checks
    found = [finding for run in findings.runs for finding in run.findings]
    for finding in found:
        place = (finding.path or str(report.path), finding.line or 1)
        report.diagnostics.append(Diagnostic(*place, 1, place[1], 1, Severity.ERROR, finding.message, finding.kind))
    if findings.failure is not None and not found:
        message = f"{findings.failure.outcome}: {findings.failure.reason}"
        report.diagnostics.append(_at_kernel(report, Severity.ERROR, message))
    for weakness in yard.weak:
        message = f"the workload cannot tell right from wrong: {weakness}"
        report.diagnostics.append(_at_kernel(report, Severity.WARNING, message))


def _problem(report: FileReport, error: Exception) -> Diagnostic:
    if isinstance(error, KernelLspError):
        message = error.message + (f" {error.cure}" if error.cure else "")
        line = error.line or 1
        return Diagnostic(str(error.path or report.path), line, 1, line, 1, Severity.ERROR, message)
    return _at_kernel(report, Severity.ERROR, str(error))


def _at_kernel(report: FileReport, severity: Severity, message: str) -> Diagnostic:
    return Diagnostic(str(report.path), 1, 1, 1, 1, severity, message)


def _note(report: FileReport, message: str) -> Diagnostic:
    return _at_kernel(report, Severity.NOTE, message)
