"""Adapters and their comparisons with their base models, as tables."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.learn.adapters import KnownAdapter
from kernel_lsp.learn.comparison import LEAST_KERNELS, AdapterComparison, Measure

_TITLES = {"right": "share right", "faster": "share faster", "speedup": "geometric mean of the best speedup"}


def adapters_view(adapters: Sequence[KnownAdapter]) -> RenderableType:
    """Return one row for each adapter, or one line if there is none."""
    if not adapters:
        return Text("no adapter was trained here; `kernel-lsp model train` makes one")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("adapter", "trained by", "rank", "kernels", "base", "loaded in", "compared with its base"):
        table.add_column(column, overflow="fold")
    for one in adapters:
        card = one.card
        said = conclusion(one.comparison) if one.comparison else "never"
        cells = (card.method, str(card.rank), str(len(card.kernels)), card.base, ", ".join(one.loaded), said)
        table.add_row(Text(card.name, "bold"), *(Text(cell) for cell in cells))
    return table


def comparison_view(comparison: AdapterComparison) -> RenderableType:
    """Return the figures of both sides, each with its paired difference, and what follows from them."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "base", comparison.adapter, "difference", "95 % interval"):
        table.add_column(column)
    for one in comparison.measures:
        table.add_row(*_row(one))
    spent = {side: sum(t.tokens for k in comparison.kernels for t in getattr(k, side)) for side in ("base", "adapter")}
    head = (
        f"{len(comparison.kernels)} kernels, {comparison.samples} trajectories on each by either side, "
        f"{comparison.tokens:,} tokens for each trajectory; spent: {spent['base']:,} and {spent['adapter']:,}"
    )
    tone = "bold green" if comparison.better else "bold"
    return Group(Text(head), table, Text(f"{comparison.adapter}: {conclusion(comparison)}", tone))


def conclusion(comparison: AdapterComparison) -> str:
    """Return in words if an adapter is better than its base."""
    if not comparison.enough:
        return f"too few kernels to tell; {LEAST_KERNELS} at least"
    title = _title(comparison.deciding.name)
    if comparison.better:
        return f"better, by the {title}"
    return f"not better beyond doubt, by the {title}"


def _row(measure: Measure) -> tuple[str, ...]:
    form, change = ("{:.3f}x", "{:.3f}x") if measure.name == "speedup" else ("{:.1%}", "{:+.1%}")
    low_high = " to ".join(change.format(one) for one in measure.interval) if measure.interval else "none of one kernel"
    shown = (form.format(measure.base), form.format(measure.adapter), change.format(measure.difference))
    return (_title(measure.name), *shown, low_high)


def _title(name: str) -> str:
    return _TITLES.get(name, f"share more than {name.removeprefix('fast_')} times as fast ({name})")
