"""Checks files, once or repeatedly: results are looked up, and workers started only for the rest."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_lsp.check.baseline import (
    FileRecord,
    Measured,
    find_root,
    name_in,
    needs_timing,
    read_baseline,
    updated,
    write_baseline,
)
from kernel_lsp.check.conclusion import conclude
from kernel_lsp.check.dependencies import Dependencies, dependencies_of
from kernel_lsp.check.examination import broken
from kernel_lsp.check.examiner import Examiner, ExaminerHere, ExaminerOnLanes
from kernel_lsp.check.joining import joined, joined_emulations, joined_texts
from kernel_lsp.check.lane import CheckCalls
from kernel_lsp.check.moved import moved
from kernel_lsp.check.record import (
    CheckStep,
    Examination,
    FileReport,
    OnStep,
    movable,
    moved_runs,
    packed,
    unpacked,
)
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.architectures import base_arch
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import DraftError, WorkloadError
from kernel_lsp.judge.emulation import Emulation
from kernel_lsp.rules.catalog import require_silenceable
from kernel_lsp.rules.rule import Needs
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.store.store import Store
from kernel_lsp.workload.spec import WorkloadFile, find_workloads

_AT_ONCE = 2


class _UnknownError(Exception):
    """The store has no result for a file as it stands."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of examining a file, its runs on the emulator, if any, and seconds spent waiting for a free worker."""

    examined: Examination
    emulation: Emulation | None = None
    remembered: bool = False
    waited: float = 0.0


def _joined(workloads: Sequence[WorkloadFile], every: Sequence[_Found]) -> _Found:
    """Return the results with each workload, or without one, as one."""
    names = [workload.source.path.stem for workload in workloads] or [""]
    return _Found(
        joined([(name, found.examined) for name, found in zip(names, every, strict=True)]),
        joined_emulations([found.emulation for found in every]),
        all(found.remembered for found in every),
        sum(found.waited for found in every),
    )


class Checker:
    """Checks kernel files with workers that stay warm from one file to the next. Use as an async context manager.

    Args:
        settings: in force for all files.
        store: where results are kept and looked up; without one every file is examined.
        workload: the workload of all files; None to find each file's own.
        run: False to compile files without running their workloads.
        record: True to write a baseline: every file is timed, and none compared with the present one.
        texts: workloads that are to be taken as they are there, and not as on disk.
        pool: workers to use, which the caller ends; by default it starts its own.
        on_step: called with each step of an examination before it is done.
        lanes: examine files in place of workers here; within the block of these calls.

    Raises:
        ConfigurationError: `check.ignore` names no rule, or one that cannot be silenced.

    Attributes:
        reads: for each file checked, all files that its check read, without links.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        *,
        workload: Path | None = None,
        run: bool = True,
        record: bool = False,
        texts: Mapping[Path, str] | None = None,
        pool: Pool | None = None,
        on_step: OnStep = lambda _: None,
        lanes: CheckCalls | None = None,
    ) -> None:
        require_silenceable(settings.check.ignore)
        self._texts, self._on_step = texts, on_step
        self._settings, self._store, self._workload, self._run, self._record = settings, store, workload, run, record
        self._examiner: Examiner = ExaminerOnLanes(lanes) if lanes else ExaminerHere(settings, pool)
        self._gpu = self._examiner.gpu
        self._target = target_device(self._gpu, settings.arch)
        built_for = base_arch(self._target.arch)
        self._not_built = tuple(name for name in settings.arch if base_arch(device_named(name).arch) != built_for)
        self._only_known = False
        self.reads: dict[Path, frozenset[Path]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._examiner.close()

    @property
    def device(self) -> str | None:
        """Return the model of the GPU that files are checked on; None without one."""
        return self._gpu.name if self._gpu else None

    async def check(self, source: SourceFile) -> FileReport:
        """Return the report on one kernel file.

        Raises:
            ConfigurationError: the baseline cannot be read.
            RunnerError: workers cannot be started.
        """
        started = time.perf_counter()
        language = language_of(source.path, source.text)
        assert language is not None, "only kernel files are checked"
        kernels = find_kernels(source.text, source.path)
        report = FileReport(source.path, language, self._target.arch, tuple(kernel.name for kernel in kernels))
        problem: WorkloadError | None = None
        settings = self._settings
        try:
            workloads = find_workloads(
                source, self._workload, self._texts, problems=settings.kernelbench.root, folders=settings.workloads
            )
        except WorkloadError as error:
            workloads, problem = (), error
        every = [dependencies_of(source, workload, settings) for workload in workloads or (None,)]
        self.reads[source.path] = frozenset().union(*(depends.paths for depends in every))
        root = find_root(source.path)
        baseline = read_baseline(root)
        record = None if self._record else baseline.find(name_in(root, source.path), self._target.arch)
        found = _Found(Examination(()))
        if problem is None or isinstance(problem, DraftError):
            results = [
                await self._examined(depends, record, number, len(every)) for number, depends in enumerate(every)
            ]
            found = _joined(workloads, results)
        if problem is not None:
            at = problem.path
            self.reads[source.path] |= {at.resolve()} if at else set()
            wrong = movable(broken(source, kernels, problem), source.path.parent)
            found = replace(found, examined=replace(found.examined, findings=(wrong, *found.examined.findings)))
        elif not workloads:
            report = replace(report, diagnostics=(_note(source, _without_workload(found.examined)),))
        report = conclude(report, joined_texts(every), found.examined, record, self.device, settings.check.ignore)
        return replace(
            report,
            workloads=tuple(workload.source.path for workload in workloads),
            emulation=found.emulation,
            remembered=found.remembered,
            device=self.device,
            not_built_for=self._not_built,
            guessed_folders=every[0].guessed_folders,
            built_for=found.examined.built_for,
            seconds=time.perf_counter() - started - found.waited,
        )

    async def recall(self, source: SourceFile) -> FileReport | None:
        """Return the report on a file that was checked before as it stands; None if it was not. Nothing is run.

        Raises:
            ConfigurationError: the baseline cannot be read.
        """
        self._only_known = True
        try:
            return await self.check(source)
        except _UnknownError:
            return None
        finally:
            self._only_known = False

    async def _examined(self, depends: Dependencies, record: FileRecord | None, number: int, count: int) -> _Found:
        """Return the result of examining the file, from the store if nothing has changed.

        It is the `number`th of `count` examinations, from 0.
        """

        def tell(step: CheckStep) -> None:
            self._on_step(replace(step, share=(number + step.share) / count))

        key = depends.key(self._settings, self._target, self._gpu, run=self._run) if self._store else None
        known = unpacked(self._store.find_check(key)) if self._store and key else None
        known = known and moved(known, depends.source, depends.code)
        if known is not None and not self._lacks_times(known, record):
            kept = known.emulation and moved_runs(known.emulation, depends.source.path.parent, back=True)
            return _Found(known, kept, remembered=True)
        if self._only_known:
            raise _UnknownError
        emulation: Emulation | None = None
        waited = 0.0
        if known is None:
            examined = await self._examiner.examine(depends, run=self._run, on_step=tell)
            known, emulation, waited = examined.examination, examined.emulation, examined.waited
        if self._lacks_times(known, record):
            known = replace(known, times=await self._examiner.time(depends, tell))
        if self._store and key and known.lasting:
            runs = emulation and moved_runs(emulation, depends.source.path.parent, back=False)
            kept = replace(known, emulation=runs or known.emulation, lines=depends.code.numbers)
            self._store.save_check(key, packed(kept))
        return _Found(known, emulation, waited=waited)

    def _lacks_times(self, examined: Examination, record: FileRecord | None) -> bool:
        """Return True if the file has yet to be timed: it runs, and its machine code is not the recorded one."""
        if self._gpu is None or Needs.RUNNING not in examined.done or examined.times is not None:
            return False
        return self._record or needs_timing(record, examined.resources, self._gpu.name)


async def check(
    sources: Sequence[SourceFile],
    settings: Settings,
    on_report: Callable[[FileReport], None] = lambda _: None,
    *,
    store: Store | None = None,
    workload: Path | None = None,
    run: bool = True,
    record: bool = False,
    texts: Mapping[Path, str] | None = None,
    pool: Pool | None = None,
    on_step: OnStep = lambda _: None,
    lanes: CheckCalls | None = None,
) -> list[FileReport]:
    """Check kernel files; `on_report` is called with each report as it is done. Other arguments as for `Checker`.

    Raises:
        ConfigurationError: the baseline cannot be read.
        RunnerError: workers cannot be started.
    """
    async with Checker(
        settings, store, workload=workload, run=run, record=record, texts=texts, pool=pool, on_step=on_step, lanes=lanes
    ) as checker:

        async def one(source: SourceFile) -> FileReport:
            report = await checker.check(source)
            on_report(report)
            return report

        return list(await asyncio.gather(*(one(source) for source in sources)))


def record_baseline(reports: Sequence[FileReport]) -> list[Path]:
    """Record the present costs of the files of these reports as their baseline, except files with errors.

    Returns:
        Paths of the baselines that were written.

    Raises:
        ConfigurationError: a baseline cannot be read or written.
    """
    by_root: dict[Path, list[Measured]] = {}
    for report in (report for report in reports if report.ok):
        root = find_root(report.path)
        name = name_in(root, report.path)
        by_root.setdefault(root, []).append(Measured(name, report.arch, report.resources, report.device, report.times))
    return [write_baseline(updated(read_baseline(root), root, files), root) for root, files in sorted(by_root.items())]


def _without_workload(examined: Examination) -> str:
    """Return a sentence on how far a file without a workload was checked."""
    compiled, guessed = sum(one.compiled for one in examined.assumed), sum(one.guessed for one in examined.assumed)
    if not examined.assumed and (examined.resources or Needs.COMPILING in examined.done):
        return "it has no workload: it was compiled, not run"
    if not compiled:
        return "it has no workload: nothing was compiled"
    said = f"it has no workload: {compiled} of {len(examined.assumed)} kernels compiled"
    return f"{said}, {guessed} of them for assumed types, none run" if guessed else f"{said}, none run"


def _note(source: SourceFile, message: str) -> Diagnostic:
    return Diagnostic(str(source.path), 1, 1, 1, 1, Severity.NOTE, message)
