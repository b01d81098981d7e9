"""Checks files, once or repeatedly: results are looked up, and workers started only for the rest."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
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
from kernel_lsp.check.examination import broken, examine
from kernel_lsp.check.joining import joined, joined_emulations, joined_texts
from kernel_lsp.check.moved import moved
from kernel_lsp.check.record import (
    CaseTime,
    CheckStep,
    Examination,
    FileReport,
    OnStep,
    movable,
    moved_runs,
    packed,
    unpacked,
)
from kernel_lsp.check.timed import time_file
from kernel_lsp.compiler.binary import Diagnostic, Severity
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu, target_device
from kernel_lsp.errors import KernelLspError, WorkloadError
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.emulation import Emulation
from kernel_lsp.judge.session import pool_on
from kernel_lsp.judge.target import Target
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
    ) -> None:
        self._texts, self._on_step = texts, on_step
        self._settings, self._store, self._workload, self._run, self._record = settings, store, workload, run, record
        self._gpu = choose_gpu(settings.gpu)
        self._target = target_device(self._gpu, settings.arch)
        self._room, self._timing = asyncio.Semaphore(_AT_ONCE), asyncio.Lock()
        self._pool, self._lent = pool, pool is not None
        self._builders: Builders | None = None
        self._only_known = False
        self.reads: dict[Path, frozenset[Path]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None and not self._lent:
            await self._pool.close()

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
        if problem is not None:
            at = problem.path
            self.reads[source.path] |= {at.resolve()} if at else set()
            wrong = movable(broken(source, kernels, problem), source.path.parent)
            found = _Found(Examination((wrong,)))
        else:
            results = [
                await self._examined(depends, record, number, len(every)) for number, depends in enumerate(every)
            ]
            found = _joined(workloads, results)
            if not workloads:
                report = replace(report, diagnostics=(_note(source, _without_workload(found.examined)),))
        report = conclude(report, joined_texts(every), found.examined, record, self.device, settings.check.ignore)
        return replace(
            report,
            workloads=tuple(workload.source.path for workload in workloads),
            emulation=found.emulation,
            remembered=found.remembered,
            device=self.device,
            guessed_folders=every[0].guessed_folders,
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
        asked = time.perf_counter()
        async with self._room:
            waited = time.perf_counter() - asked
            if self._pool is None:
                self._pool = pool_on(self._gpu, self._settings)
            if self._builders is None:
                self._builders = Builders(self._pool, self._settings, self._target)
            if known is None:
                known, emulation = await examine(
                    depends.source,
                    depends.workload,
                    self._pool,
                    self._builders,
                    self._settings,
                    self._gpu,
                    run=self._run,
                    on_step=tell,
                )
        if self._lacks_times(known, record):
            tell(CheckStep("timing", 1.0))
            async with self._alone():
                known = replace(known, times=await self._time(depends, self._pool))
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

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Keep other files from being examined within the context, since their runs would disturb this file's times."""
        async with self._timing, AsyncExitStack() as stack:
            for _ in range(_AT_ONCE):
                await stack.enter_async_context(self._room)
            yield

    async def _time(self, depends: Dependencies, pool: Pool) -> tuple[CaseTime, ...]:
        source, workload = depends.source, depends.workload
        language = language_of(source.path, source.text)
        assert language is not None, "only kernel files are checked"
        assert workload is not None, "only what has run is timed"
        assert self._gpu is not None, "only a GPU is timed"
        target = Target(language, source, find_kernels(source.text, source.path), None, workload)
        try:
            return await time_file(pool, target, self._settings, self._gpu)
        except KernelLspError:  # right, but it cannot be timed, so there is nothing to compare with the baseline
            return ()


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
) -> list[FileReport]:
    """Check kernel files; `on_report` is called with each report as it is done. Other arguments as for `Checker`.

    Raises:
        ConfigurationError: the baseline cannot be read.
        RunnerError: workers cannot be started.
    """
    async with Checker(
        settings, store, workload=workload, run=run, record=record, texts=texts, pool=pool, on_step=on_step
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
