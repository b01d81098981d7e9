"""An error as help: what was wrong, where, and what to do about it."""

from rich.console import Group, RenderableType
from rich.text import Text

from kernel_lsp.errors import KernelLspError


def problem_view(error: KernelLspError) -> RenderableType:
    """Up to three lines; the place is written `FILE:LINE`, as editors and terminals make links of it."""
    message = error.message[:1].upper() + error.message[1:].rstrip(".")
    lines = [Text.assemble(("error ", "bold red"), f"{message}.")]
    if error.path is not None:
        place = f"{error.path}:{error.line}" if error.line else str(error.path)
        lines.append(Text.assemble(("   at ", "dim"), place))
    if error.cure:
        lines.append(Text.assemble((" cure ", "bold green"), error.cure))
    return Group(*lines)
