"""`kernel-lsp untrust`: withdraws the permission of `kernel-lsp trust`."""

from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.lsp.trust import Trust

app = typer.Typer(add_completion=False)


@app.command()
def untrust(folder: Annotated[Path, typer.Argument(help="The folder.")]) -> None:
    """Let the language server only parse what is in a folder."""
    Trust().remove(folder)
