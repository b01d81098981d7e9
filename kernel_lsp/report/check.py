"""The report of `check` on one file: one line when all is well, and what is wrong below it when it is not."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.check import FileReport
from kernel_lsp.check.program import LAUNCHES
from kernel_lsp.check.record import WORKLOAD
from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.errors import SourceError
from kernel_lsp.judge.verdict import Check, CheckStatus, is_uncompared
from kernel_lsp.report.compile import assumed_view, diagnostics_view, guessed_folders_view
from kernel_lsp.report.units import seconds_text
from kernel_lsp.workload.spec import REFERENCE

_FIGURE = re.compile(r"-?\d[\d.,]*(?:e[-+]?\d+)?")


def file_view(report: FileReport, text: str, width: int = 0) -> RenderableType:
    """A line for the file; below it errors and warnings at their place in `text`, and the checks that failed.

    `width` is that of the longest path to be shown, so that lines stand under one another.
    """
    line = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    line.add_column(overflow="fold", min_width=min(width + 2, 60))
    line.add_column(justify="right", min_width=6, no_wrap=True, style="dim")
    line.add_column(overflow="fold", style="dim")
    mark = ("✗ ", "bold red") if not report.ok else ("✓ ", "green") if _is_whole(report) else ("– ", "yellow")
    line.add_row(
        Text.assemble(mark, (str(report.path), "bold")), seconds_text(report.seconds), Text(", ".join(_found(report)))
    )
    shown = [d for d in report.diagnostics if d.severity is not Severity.NOTE]
    below: list[RenderableType] = [diagnostics_view(shown, {str(report.path): text})] if shown else []
    if report.assumed:
        below.append(assumed_view(report.assumed, str(report.path)))
    if report.never_launched:
        below.append(Text(f"  never launched: {', '.join(report.never_launched)}", "dim"))
    if report.emulation is not None and (lacking := report.emulation.needs_gpu) is not None:
        place = f" ({lacking.path}{f':{lacking.line}' if lacking.line else ''})" if lacking.path else ""
        below.append(Text(f"  not run: {lacking.reason}{place}", "dim"))
    if report.guessed_folders:
        below.append(guessed_folders_view(report.guessed_folders))
    return Group(line, *below) if below else line


def summary_view(
    reports: Sequence[FileReport], unread: Sequence[SourceError] = (), *, strict: bool = False
) -> RenderableType:
    """Return what could not be done and why, then one line for all files; with `strict` warnings fail.

    `unread` are files that may have kernels and could not be read.
    """
    skipped = [[check for check in report.checks if check.status is CheckStatus.SKIPPED] for report in reports]
    without: list[str] = []
    if any(_is_run(check) for checks in skipped for check in checks):
        without.append("some kernels were compiled only")
    if any(_is_plain(check) for checks in skipped for check in checks):
        without.append("kernels ran on the emulator, on small cases")
    lines = [Text(f"No GPU: {'; '.join(without)}.", "dim")] if without else []
    reasons = [[check.detail for check in checks if not _is_run(check) and not _is_plain(check)] for checks in skipped]
    lines += [Text(f"Skipped in {_counted(count, 'file')}: {reason}.", "dim") for reason, count in _alike(reasons)]
    lines += [Text(f"Not read: {error}", "yellow") for error in unread]
    kernels = _counted(sum(len(report.kernels) for report in reports), "kernel")
    arch = ", ".join(sorted({report.built_for or report.arch for report in reports}))
    bad = sum(not report.ok for report in reports)
    warnings = sum(d.severity is Severity.WARNING for report in reports for d in report.diagnostics)
    silenced = sum(len(report.silenced) for report in reports)
    gaps = [*_gaps(reports), *([f"{_counted(len(unread), 'file')} not read"] if unread else [])]
    ending = [(f"{bad} with errors", "bold red")] if bad else []
    if not bad and gaps and not _any_compiled(reports):
        ending = []
    elif not bad and not (strict and warnings):
        ending = [("no errors", "bold")] if gaps else [("all well", "bold green")]
    ending += [(gap, "yellow") for gap in gaps]
    ending += [(_counted(warnings, "warning"), "bold red" if strict else "yellow")] if warnings else []
    ending += [(f"{silenced} silenced", "dim")] if silenced else []
    last = Text(f"{_counted(len(reports), 'file')}, {kernels}, {arch}: ")
    return Group(*lines, last.append(Text(", ").join(Text(*part) for part in ending)))


def _gaps(reports: Sequence[FileReport]) -> list[str]:
    """Return what was not done, which nobody may take for well."""
    assumed = [one for report in reports for one in report.assumed]
    compiled, guessed = sum(one.compiled for one in assumed), sum(one.guessed for one in assumed)
    never = sum(len(report.never_launched) for report in reports)
    how = " for assumed types" if guessed == compiled else f" ({guessed} for assumed types)" if guessed else ""
    found = [f"{_counted(compiled, 'kernel')} compiled{how} and not run"] if compiled else []
    if len(assumed) > compiled:
        found += [f"{len(assumed) - compiled} not compiled" if compiled else "nothing was compiled"]
    without = sum(report.ok and not report.assumed and not _has_run(report) for report in reports)
    found += [f"{_counted(without, 'file')} compiled and not run"] if without else []
    uncompared = sum(report.ok and _has_run(report) and is_uncompared(report.checks) for report in reports)
    found += [f"outputs of {_counted(uncompared, 'file')} compared with nothing"] if uncompared else []
    found += [f"{_counted(never, 'kernel')} never launched"] if never else []
    others = ", ".join(dict.fromkeys(name for report in reports for name in report.not_built_for))
    return found + ([f"not built for {others} (`kernel-lsp facts` builds for each)"] if others else [])


def _any_compiled(reports: Sequence[FileReport]) -> bool:
    return any(not report.assumed or any(one.compiled for one in report.assumed) for report in reports)


def _is_whole(report: FileReport) -> bool:
    """Return True if all was done that a check can do without a workload."""
    away = any(d.severity is Severity.WARNING and "cannot be imported" in d.message for d in report.diagnostics)
    unknown = compiler_part(report.language).compiles_at_launch and _is_bare(report)
    missed = any(check.name == LAUNCHES and check.status is CheckStatus.SKIPPED for check in report.checks)
    return not (report.not_compiled or away or unknown or missed or is_uncompared(report.checks))


def _is_bare(report: FileReport) -> bool:
    """Return True for a file without a workload of which nothing was compiled."""
    return not report.workloads and any("nothing was compiled" in d.message for d in report.diagnostics)


def recorded_view(files: Sequence[Path], reports: Sequence[FileReport]) -> RenderableType:
    """Where baselines were written, and which files of a check are not in them."""
    left_out = [str(report.path) for report in reports if not report.ok]
    lines = [Text(f"Recorded as the baseline in {file}.") for file in files]
    return Group(*lines, *(Text(f"Not recorded, because it has errors: {path}.", "yellow") for path in left_out))


def _found(report: FileReport) -> list[str]:
    """Return a summary of the file in a few words."""
    errors, warnings = (
        sum(d.severity is severity for d in report.diagnostics) for severity in (Severity.ERROR, Severity.WARNING)
    )
    doubts = [_counted(warnings, "warning")] if warnings else []
    if errors:
        return [_counted(errors, "error"), *doubts]
    notes = [d.message for d in report.diagnostics if d.severity is Severity.NOTE]
    if notes:
        return notes + doubts
    never = len(report.never_launched)
    count = len(set(report.kernels))
    doubts = [f"{count - never} of {_counted(count, 'kernel')} launched", *doubts] if never else doubts
    passed = sum(check.status is CheckStatus.PASSED for check in report.checks)
    skipped = [check for check in report.checks if check.status is CheckStatus.SKIPPED]
    if any(map(_is_run, skipped)):
        return ["compiled", "needs a GPU to run", *doubts]
    large = sum(map(_is_plain, skipped))
    ran = sum(check.status is CheckStatus.PASSED and _is_plain(check) for check in report.checks)
    found = [f"{_counted(passed, 'check')} passed" if passed else "compiled"]
    if is_uncompared(report.checks):
        skipped = [check for check in skipped if check.name != REFERENCE]
        found = [f"ran on {_counted(passed, 'set')} of inputs", "outputs not compared"] if passed else ["compiled"]
    elif large and ran:
        found = [f"right on {ran} of {ran + large} cases ({_counted(passed, 'check')})"]
    elif large:
        found += [f"{_counted(large, 'case')} not run"]
    found += [f"{len(skipped) - large} skipped"] if len(skipped) > large else []
    return found + doubts


def _has_run(report: FileReport) -> bool:
    """Return True if any run of the file's kernels was right; that its workload runs says nothing of them."""
    return any(check.status is CheckStatus.PASSED and check.name != WORKLOAD for check in report.checks)


def _is_run(check: Check) -> bool:
    """Return True if the check represents all runs of a kernel that only a GPU can run."""
    return check.name == "run"


def _is_plain(check: Check) -> bool:
    """Return True if the check represents its case; if skipped, only a GPU can run that case in time."""
    return check.name == "inputs: normal"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _alike(reasons: Sequence[Sequence[str]]) -> Iterator[tuple[str, int]]:
    """Yield reasons of files with the number of files; those that differ in figures only once, as the first says it."""
    first: dict[str, str] = {}
    counts = Counter[str]()
    for said in reasons:
        alike = {_FIGURE.sub("0", reason): reason for reason in reversed(said)}
        first = alike | first
        counts.update(alike.keys())
    yield from ((first[key], count) for key, count in counts.items())
