"""An error as help: what was wrong, where, and what to do about it."""

from rich.table import Table
from rich.text import Text

from kernel_lsp.errors import KernelLspError


def problem_view(error: KernelLspError) -> Table:
    """Return up to three rows; the place is written `FILE:LINE`, which editors and terminals turn into a link."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    message = error.message[:1].upper() + error.message[1:]
    if not message.endswith((".", "?", "!")):
        message += "."
    table.add_row(Text("error", "bold red"), Text(message))
    if error.path is not None:
        place = f"{error.path}:{error.line}" if error.line else str(error.path)
        table.add_row(Text("at", "dim"), Text(place))
    if error.fix:
        table.add_row(Text("fix", "bold green"), Text(error.fix))
    return table
