"""Shows the profile of a kernel file: the lines that cost most, with what they execute and move."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.check.profile import FileProfile, KernelProfile, LineProfile
from kernel_lsp.report.units import percent_text

_LEAST_SHARE = 0.03
"""Share of a kernel's instructions or traffic below which a line is left out. Chosen: a screen holds the others."""
_TITLES = ("Line", "Instructions", "Active lanes", "Traffic", "Loads", "Stores", "Banks", "Code")


def profile_view(profile: FileProfile) -> RenderableType:
    """Return each kernel's costly lines, and below them what the columns say.

    Loads and stores are sectors of 32 bytes for each request of a warp, with the ideal number in brackets where it is
    another; banks are passes over shared memory for each request, where banks conflict.
    """
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
    shown = [line for line in kernel.lines if max(line.instruction_share, line.traffic_share) >= _LEAST_SHARE]
    for line in shown:
        table.add_row(*_row(line))
    left = len(kernel.lines) - len(shown)
    if left:
        rest = sum(line.instruction_share for line in kernel.lines) - sum(line.instruction_share for line in shown)
        table.add_row("", percent_text(rest), "", "", "", "", "", f"({left} other lines)")
    return table


def _row(line: LineProfile) -> tuple[str | Text, ...]:
    counts = line.counts
    where = str(line.line) if line.text else f"{Path(line.path).name}:{line.line}" if line.path else "-"
    shared = counts["shared_load_requests"] + counts["shared_store_requests"]
    conflicts = counts["shared_load_conflicts"] + counts["shared_store_conflicts"]
    passes = counts["shared_load_wavefronts"] + counts["shared_store_wavefronts"]
    return (
        where,
        percent_text(line.instruction_share),
        percent_text(line.active_share) if line.active_share < 1 else "",
        percent_text(line.traffic_share) if line.traffic_share else "",
        _sectors(counts, "load"),
        _sectors(counts, "store"),
        f"{passes / shared:.1f}" if conflicts else "",
        Text(line.text, no_wrap=True, overflow="ellipsis"),  # brackets are no markup
    )


def _sectors(counts: Mapping[str, int], what: str) -> str:
    requests = counts[f"{what}_requests"]
    if not requests:
        return ""
    sectors, ideal = (counts[f"{what}_{kind}"] / requests for kind in ("sectors", "ideal_sectors"))
    return f"{sectors:.1f}" if sectors - ideal < 0.05 else f"{sectors:.1f} ({ideal:.1f})"
