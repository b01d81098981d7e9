"""Datasets and trainings, as tables."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.learn.collect import Collected


def collected_view(found: Collected) -> RenderableType:
    """Return the counts of a dataset: the turns kept, and those left out with the reason."""
    kept = found.train + found.held_out
    head = Text.assemble(
        (f"{kept} of {found.turns} turns", "bold"),
        f" on {found.kernels} kernels in {found.folder}: {found.train} to train on, {found.held_out} held out",
    )
    table = Table.grid(padding=(0, 2))
    for reason, count in found.dropped.items():
        table.add_row("", Text(str(count), justify="right"), Text(reason, "dim"))
    return Group(head, table) if found.dropped else head
