"""Turns what the emulator found while a user's own program ran into reports on its kernel files, as `check` makes them.

`capture` runs the program. A report is of what its launches reached, and of nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.capture.run import Captured
from kernel_lsp.check.conclusion import conclude
from kernel_lsp.check.dependencies import Dependencies
from kernel_lsp.check.emulated import of_emulator
from kernel_lsp.check.record import Examination, FileReport, movable
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import SourceError
from kernel_lsp.judge.verdict import Check, CheckStatus
from kernel_lsp.runner.programs import EmulatedProcess, NotRun, ProgramFinding, ProgramKernel, added_up
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of, read_source
from kernel_lsp.source.kernel import Language

LAUNCHES = "launches"
"""Name of the checks that represent a program's launches of one kernel."""


@dataclass(frozen=True, slots=True)
class ProgramCheck:
    """A program that ran on the emulator.

    Attributes:
        command: its name, without arguments.
        exit_code: its own; minus the signal's number if one ended it.
        emulated: what ran there, over all its processes.
        unable: why some of its processes did not see the emulator.
        captures: the workloads that it left.
        reports: one for each kernel file of which something was launched.
        texts: these files' texts, by path as the reports give it.
    """

    command: str
    exit_code: int
    emulated: EmulatedProcess
    unable: tuple[str, ...]
    captures: tuple[Path, ...]
    reports: tuple[FileReport, ...]
    texts: Mapping[str, str]


def check_program(command: str, captured: Captured, settings: Settings) -> ProgramCheck:
    """Return the reports on the kernel files of a program that was run with `emulate`."""
    emulated = added_up(captured.emulated)
    every = (*emulated.kernels, *emulated.findings, *emulated.not_run)
    sources = [_source(file) for file in dict.fromkeys(one.file for one in every) if file]
    own = {source.path.resolve(): source for source in sources}
    reports = tuple(_report(source, emulated, own, settings) for source in sources)
    texts = {str(source.path): source.text for source in sources}
    return ProgramCheck(command, captured.code, emulated, captured.unable, captured.written, reports, texts)


def reached_by(tests: Sequence[str], launches: int) -> str:
    """Return `reached by TEST and 2 other tests, in 7 launches`, as far as that is known and not a matter of course."""
    others = len(tests) - 1
    more = f" and {others} other test{'s' if others > 1 else ''}" if others > 0 else ""
    parts = [f"reached by {tests[0]}{more}"] if tests else []
    parts += [f"in {launches:,} launches"] if launches > 1 else []
    return ", ".join(parts)


def _source(file: str) -> SourceFile:
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    try:
        return read_source(shown)
    except SourceError:  # it was written for the run alone
        return SourceFile(shown, "")


def _report(
    source: SourceFile, emulated: EmulatedProcess, files: Mapping[Path, SourceFile], settings: Settings
) -> FileReport:
    def here(one: ProgramFinding | ProgramKernel | NotRun) -> bool:
        return one.file != "" and Path(one.file).resolve() == source.path.resolve()

    kernels = find_kernels(source.text, source.path)
    language = language_of(source.path, source.text) or Language.TRITON
    names = tuple(kernel.name for kernel in kernels)
    ran, missed = list(filter(here, emulated.kernels)), list(filter(here, emulated.not_run))
    found = [_finding(one, source) for one in emulated.findings if here(one)]
    folder = source.path.parent
    examined = Examination(
        findings=tuple(movable(finding, folder) for finding in found),
        checks=(
            *(Check(name=LAUNCHES, status=CheckStatus.PASSED, detail=_ran(kernel)) for kernel in ran),
            *(Check(name=LAUNCHES, status=CheckStatus.SKIPPED, detail=not_run(work)) for work in missed),
        ),
    )
    others = tuple(file for path, file in files.items() if path != source.path.resolve())
    report = FileReport(source.path, language, emulated.arch, names)
    report = conclude(
        report, Dependencies(source, None, others, whole=False), examined, None, None, settings.check.ignore
    )
    said = _said(ran, missed)
    note = Diagnostic(str(source.path), 1, 1, 1, 1, Severity.NOTE, said)
    return replace(report, diagnostics=(*report.diagnostics, note))


def _finding(found: ProgramFinding, source: SourceFile) -> Diagnostic:
    made = of_emulator(found.finding, source, find_kernels(source.text, source.path))
    reached = reached_by(found.tests, found.launches)
    return replace(made, message=f"{made.message} {reached[:1].upper()}{reached[1:]}." if reached else made.message)


def _ran(kernel: ProgramKernel) -> str:
    return f"`{kernel.name}` was launched {_times(kernel.launches)}"


def not_run(work: NotRun) -> str:
    """Return a sentence, without its end, on launches that the emulator could not run."""
    reached = reached_by(work.tests, work.launches)
    return f"`{work.kernel}` was not run: {work.why.removesuffix('.')}" + (f" ({reached})" if reached else "")


def _said(ran: Sequence[ProgramKernel], missed: Sequence[NotRun]) -> str:
    launches, without = sum(kernel.launches for kernel in ran), sum(work.launches for work in missed)
    said = f"{launches:,} launch{'' if launches == 1 else 'es'} ran on the emulator"
    return f"{said}, {without:,} not run" if without else said


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
