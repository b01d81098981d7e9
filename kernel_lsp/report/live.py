"""A search as it runs, drawn from one record of progress; drawing the same record twice gives the same lines."""

from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kernel_lsp.refine.progress import SearchProgress
from kernel_lsp.report.units import interval_text, speedup_text, talking_text


def progress_view(progress: SearchProgress) -> RenderableType:
    """Return a line each for the current activity, the progress, the best candidate, and the time left."""
    counts = Text("  ")
    for number, what in (
        (progress.proposed, "candidates"),
        (progress.built, "built"),
        (progress.correct, "correct"),
        (progress.raced, "raced"),
    ):
        counts.append(" · " if len(counts) > 2 else "", "dim")
        counts.append(f"{number} ", "bold").append(what)
    talking = talking_text(**asdict(progress.talking))
    return Group(
        Text(f"  {progress.doing}", "cyan", no_wrap=True, overflow="ellipsis"),
        *([Text(f"  {talking}", no_wrap=True, overflow="ellipsis")] if talking else []),
        counts,
        _best(progress),
        _clock(progress),
    )


def time_left(progress: SearchProgress) -> str:
    """The rest of the budget as `m:ss`."""
    minutes, seconds = divmod(max(0, round(progress.budget - progress.elapsed)), 60)
    return f"{minutes}:{seconds:02} left"


def _best(progress: SearchProgress) -> Text:
    best = progress.best
    if best is None:
        return Text("  nothing faster yet", "dim")
    line = Text("  best ", no_wrap=True, overflow="ellipsis")
    line.append(speedup_text(best.speedup), "bold green" if best.confirmed else "bold")
    line.append(f" ({interval_text(best.interval)}) ").append(best.label, "dim")
    return line if best.confirmed else line.append(" to be confirmed", "dim")


def _clock(progress: SearchProgress) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_row(
        Text(" "),
        ProgressBar(total=progress.budget, completed=min(progress.elapsed, progress.budget), width=32),
        Text(time_left(progress), "dim"),
    )
    return line
