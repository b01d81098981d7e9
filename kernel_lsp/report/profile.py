"""Shows the profile of a kernel file: the lines that cost most, with what they execute and move."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.check.profile import FileProfile, KernelProfile, LineProfile
from kernel_lsp.report.units import percent_text

COUNTS = ("Instructions", "Active lanes", "Traffic", "Loads", "Stores", "Banks")
"""Titles of what `counts_of` returns."""
_TITLES = ("Line", *COUNTS, "Code")


def profile_view(profile: FileProfile) -> RenderableType:
    """Return each kernel's costly lines, and below them what the columns say."""
    if profile.problem:
        return Text(f"{profile.path}: nothing was counted: {profile.problem}.", "yellow")
    parts: list[RenderableType] = []
    for kernel in profile.kernels:
        parts += [Text(kernel.kernel, "bold"), _table(kernel)]
    cases = "; ".join(profile.cases)
    said = f"Counted by the emulator on {cases} ({profile.arch}). Loads, stores: sectors a request (ideal). No times."
    return Group(*parts, Text(said, "dim"))


def _table(kernel: KernelProfile) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in _TITLES:
        is_code = title == "Code"  # which gives way where the terminal is narrow
        table.add_column(title, justify="left" if is_code else "right", no_wrap=not is_code)
    shown = [line for line in kernel.lines if line.is_costly]
    for line in shown:
        table.add_row(*_row(line))
    left = len(kernel.lines) - len(shown)
    if left:
        rest = sum(line.instruction_share for line in kernel.lines) - sum(line.instruction_share for line in shown)
        table.add_row("", percent_text(rest), "", "", "", "", "", f"({left} other lines)")
    return table


def _row(line: LineProfile) -> tuple[str | Text, ...]:
    where = str(line.line) if line.text else elsewhere(line)
    code = Text(line.text, no_wrap=True, overflow="ellipsis")  # brackets are no markup
    return where, *counts_of(line), code


def elsewhere(line: LineProfile) -> str:
    """Return the place of a line of another file, such as `tile.cuh:12`; `-` for instructions of no line."""
    return f"{Path(line.path).name}:{line.line}" if line.path else "-"


def counts_of(line: LineProfile) -> tuple[str, ...]:
    """Return the counts of a line, one for each title of `COUNTS`; empty where there is nothing to say.

    Loads and stores are sectors of 32 bytes for each request of a warp, with the ideal number in brackets where it is
    another; banks are passes over shared memory for each request, where banks conflict.
    """
    counts = line.counts
    shared = counts["shared_load_requests"] + counts["shared_store_requests"]
    conflicts = counts["shared_load_conflicts"] + counts["shared_store_conflicts"]
    passes = counts["shared_load_wavefronts"] + counts["shared_store_wavefronts"]
    return (
        percent_text(line.instruction_share),
        percent_text(line.active_share) if line.active_share < 1 else "",
        percent_text(line.traffic_share) if line.traffic_share else "",
        _sectors(counts, "load"),
        _sectors(counts, "store"),
        f"{passes / shared:.1f}" if conflicts else "",
    )


def _sectors(counts: Mapping[str, int], what: str) -> str:
    requests = counts[f"{what}_requests"]
    if not requests:
        return ""
    sectors, ideal = (counts[f"{what}_{kind}"] / requests for kind in ("sectors", "ideal_sectors"))
    return f"{sectors:.1f}" if sectors - ideal < 0.05 else f"{sectors:.1f} ({ideal:.1f})"
