"""The report of `check` on one file: one line when all is well, and what is wrong below it when it is not."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kernel_lsp.build.binary import Severity
from kernel_lsp.judge.check import FileReport
from kernel_lsp.judge.verdict import CheckStatus
from kernel_lsp.report.compile import diagnostics_view
from kernel_lsp.report.units import seconds_text


def file_view(report: FileReport, text: str) -> RenderableType:
    """A line for the file; below it errors and warnings at their place in `text`, and the checks that failed."""
    shown = [d for d in report.diagnostics if d.severity is not Severity.NOTE]
    passed = sum(check.status is CheckStatus.PASSED for check in report.checks)
    facts = [str(report.language), report.arch, _counted(len(report.kernels), "kernel")]
    facts += [_counted(passed, "check")] if passed else []
    facts += [d.message for d in report.diagnostics if d.severity is Severity.NOTE]
    skipped = sum(check.status is CheckStatus.SKIPPED for check in report.checks)
    facts += [f"{skipped} skipped"] if skipped else []
    mark = Text.assemble(("✓ ", "green") if report.ok else ("✗ ", "bold red"), (str(report.path), "bold"))
    line = mark.append(f"  {' · '.join(facts)} · {seconds_text(report.seconds)}", "dim not bold")
    return Group(line, diagnostics_view(shown, {str(report.path): text})) if shown else line


def summary_view(reports: Sequence[FileReport]) -> RenderableType:
    """What was skipped and why, then one line for all files."""
    skipped = Counter(
        reason
        for report in reports
        for reason in {check.detail for check in report.checks if check.status is CheckStatus.SKIPPED}
    )
    lines = [Text(f"skipped in {_counted(count, 'file')}: {reason}", "dim") for reason, count in skipped.most_common()]
    bad = sum(not report.ok for report in reports)
    ending = Text(f", {bad} with errors", "bold red") if bad else Text(", all well", "bold green")
    return Group(*lines, Text.assemble((_counted(len(reports), "file"), "bold"), ending))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
