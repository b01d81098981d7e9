"""`kernel-lsp profile`: shows what each line of a file's kernels executes and moves, without a GPU."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.check import FileReport, find_kernel_files
from kernel_lsp.check import check as check_files
from kernel_lsp.check.profile import profile_of
from kernel_lsp.cli.console import err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.main import CANNOT_JUDGE
from kernel_lsp.cli.options import Json, Workload
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import SourceError
from kernel_lsp.report.machine import records_json
from kernel_lsp.report.profile import profile_view
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import Store

app = typer.Typer(add_completion=False)


@app.command()
def profile(
    file: Annotated[Path, typer.Argument(help="A kernel file.")],
    workload: Workload = None,
    json: Json = False,
) -> None:
    """Show what each line of a file's kernels executes and moves, counted by the emulator on its small cases."""
    if file.is_dir():
        raise SourceError("This is a folder; one file is profiled.", file, fix="Name a kernel file in it.")
    settings = settings_for(file)
    source = find_kernel_files([file])[0]
    with opened_store(settings) as store, err.status(f"running {file} on the emulator"):
        found = profile_of(asyncio.run(_checked(source, settings, store, workload)), source.text)
        say_notices(store)
    if json:
        typer.echo(records_json(found))
    else:
        out.print(profile_view(found), crop=False)
    if found.problem:
        raise typer.Exit(CANNOT_JUDGE)


async def _checked(source: SourceFile, settings: Settings, store: Store, workload: Path | None) -> FileReport:
    """Return the report of the file's check, which is looked up if nothing has changed."""
    return (await check_files((source,), settings, lambda _: None, store=store, workload=workload))[0]
