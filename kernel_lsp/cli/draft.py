"""`kernel-lsp draft`: drafts a first workload for a kernel file, for its author to read, correct and accept."""

from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.cli.console import err
from kernel_lsp.source.files import read_source, write_new
from kernel_lsp.workload.draft import draft_for
from kernel_lsp.workload.spec import workload_path

app = typer.Typer(add_completion=False)


@app.command()
def draft(
    file: Annotated[Path, typer.Argument(help="A kernel file.")],
    kernel: Annotated[str | None, typer.Option(help="One of its kernels; by default the first.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Write it to STEM_workload.py beside the file.")] = False,
) -> None:
    """Draft a workload from a kernel's signature and from how host code in its file launches it.

    It is printed, or written where there is no such file yet; it is not used until its first line is removed.
    """
    text = draft_for(read_source(file), kernel)
    if not write:
        typer.echo(text, nl=False)
        return
    path = workload_path(file)
    write_new(path, text)
    err.print(f"Written to {path}. Read it, fix it, then remove its first line.")
