"""`kernel-lsp trust`: allows the language server to compile and run the code in a folder."""

from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.cli.console import out
from kernel_lsp.lsp.trust import Trust

app = typer.Typer(add_completion=False)


@app.command()
def trust(
    folder: Annotated[Path | None, typer.Argument(help="The folder; without one, those trusted are listed.")] = None,
) -> None:
    """Let the language server compile and run what is in a folder. It only parses what is elsewhere."""
    trusted = Trust()
    if folder is not None:
        trusted.add(folder)
    for known in trusted.folders:
        out.print(str(known), markup=False)
