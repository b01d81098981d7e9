"""`kernel-lsp doctor`: lists the tools that this machine has or lacks."""

import typer

from kernel_lsp.cli.console import out
from kernel_lsp.cli.options import Json
from kernel_lsp.report.doctor import survey, survey_view
from kernel_lsp.report.machine import records_json

app = typer.Typer(add_completion=False)


@app.command()
def doctor(json: Json = False) -> None:
    """List driver, GPUs, compilers and tools; what each missing one costs, and the command that fixes it."""
    items = survey()
    if json:
        typer.echo(records_json(items))
    else:
        out.print(survey_view(items), crop=False)
