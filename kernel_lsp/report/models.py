"""Models and their servers, as tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.model.profile import Profile
from kernel_lsp.model.servers import ModelServer


def profiles_view(profiles: Sequence[Profile], found: Mapping[str, Path]) -> RenderableType:
    """One row for each profile; `found` says in which folder a model's weights lie."""
    table = _table("profile", "what it is", "bf16", "fp8", "4 bits", "weights")
    for profile in profiles:
        sizes = profile.memory.weights_gib if profile.memory else {}
        cells = [f"{sizes[d]:.1f} GiB" if d in sizes else "" for d in ("bf16", "fp8", "4bit")]
        where = Text(str(found[profile.id])) if profile.id in found else Text("not here", "dim")
        table.add_row(Text(profile.id, "bold"), Text(profile.title), *cells, where)
    return table


def servers_view(servers: Sequence[ModelServer]) -> RenderableType:
    """One row for each server that runs, or one line where none does."""
    if not servers:
        return Text("no model server is running; `kernel-lsp model serve` starts one")
    table = _table("server", "serves", "where", "how", "log")
    for server in servers:
        where = str(server.uds or server.url)
        row = (", ".join(server.models), where, server.choice, str(server.folder / "log"))
        table.add_row(Text(server.name, "bold"), *(Text(cell, overflow="fold") for cell in row))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
