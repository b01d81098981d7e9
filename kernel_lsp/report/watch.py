"""The live view of a watched folder: files with findings in full, the others a line each, then one line for all."""

from pathlib import Path

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from kernel_lsp.check.watching import FolderStatus
from kernel_lsp.report.check import file_view, summary_view


def watch_view(status: FolderStatus, folder: Path) -> RenderableType:
    """Files that are well first, so that what is wrong stands next to the last line however long the list is."""
    width = max((len(str(path)) for path in status.reports), default=0)
    ordered = sorted(status.reports.values(), key=lambda report: (not report.ok, bool(report.diagnostics)))
    views: list[RenderableType] = [file_view(report, status.texts.get(report.path, ""), width) for report in ordered]
    if status.reports:
        views.append(summary_view(list(status.reports.values())))
    if status.problem:
        views.append(Text(status.problem, "bold red"))
    return Group(*views, _doing(status, folder))


def _doing(status: FolderStatus, folder: Path) -> RenderableType:
    if status.checking:
        names = ", ".join(path.name for path in sorted(status.checking)[:3])
        more = f" and {len(status.checking) - 3} more" if len(status.checking) > 3 else ""
        return Spinner("dots", Text(f"checking {names}{more}", "cyan"))
    what = "waiting for changes" if status.reports else "no kernel yet"
    return Text(f"{folder}: {what}, Ctrl-C ends", "dim")
