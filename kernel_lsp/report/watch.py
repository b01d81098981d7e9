"""The live view of a watched folder: files with findings in full, the others a line each, then one line for all."""

from pathlib import Path

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from kernel_lsp.check.watching import Standing
from kernel_lsp.report.check import file_view, summary_view


def watch_view(standing: Standing, folder: Path) -> RenderableType:
    """Files that are well first, so that what is wrong stands next to the last line however long the list is."""
    width = max((len(str(path)) for path in standing.reports), default=0)
    ordered = sorted(standing.reports.values(), key=lambda report: (not report.ok, bool(report.diagnostics)))
    views: list[RenderableType] = [file_view(report, standing.texts.get(report.path, ""), width) for report in ordered]
    if standing.reports:
        views.append(summary_view(list(standing.reports.values())))
    if standing.problem:
        views.append(Text(standing.problem, "bold red"))
    return Group(*views, _doing(standing, folder))


def _doing(standing: Standing, folder: Path) -> RenderableType:
    if standing.checking:
        names = ", ".join(path.name for path in sorted(standing.checking)[:3])
        more = f" and {len(standing.checking) - 3} more" if len(standing.checking) > 3 else ""
        return Spinner("dots", Text(f"checking {names}{more}", "cyan"))
    what = "waiting for changes" if standing.reports else "no kernel yet"
    return Text(f"{folder}: {what}, Ctrl-C ends", "dim")
