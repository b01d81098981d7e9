"""`kernel-lsp model adapters`: lists the adapters that were trained here, and removes one."""

import asyncio
from typing import Annotated

import typer

from kernel_lsp.cli.console import out, settings_for
from kernel_lsp.cli.options import Json

app = typer.Typer(add_completion=False, invoke_without_command=True)


@app.callback()
def adapters(ctx: typer.Context, json: Json = False) -> None:
    """List the adapters that were trained here, where they are loaded, and how they compared with their base.

    The setting `model.adapter` chooses the one that answers in a project.
    """
    if ctx.invoked_subcommand is not None:
        return
    from kernel_lsp.learn.adapters import known_adapters
    from kernel_lsp.report.adapters import adapters_view
    from kernel_lsp.report.machine import records_json

    found = asyncio.run(known_adapters(settings_for().paths.data))
    if json:
        typer.echo(records_json(found))
    else:
        out.print(adapters_view(found))


@app.command()
def remove(name: Annotated[str, typer.Argument(help="The adapter.")]) -> None:
    """Have running servers unload an adapter, and delete it with its training."""
    from kernel_lsp.learn.adapters import remove_adapter

    asyncio.run(remove_adapter(settings_for().paths.data, name))
    out.print(f"{name} is removed", markup=False)
