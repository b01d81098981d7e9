"""`kernel-lsp watch`: checks the kernels below a folder whenever they change."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from kernel_lsp.check import Checker
from kernel_lsp.check.watching import FolderStatus, watch_folder
from kernel_lsp.cli.console import err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.options import Gpu, Workload
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import SourceError
from kernel_lsp.report.check import file_view
from kernel_lsp.report.watch import watch_view
from kernel_lsp.store.store import Store

app = typer.Typer(add_completion=False)


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(help="A folder with kernel files.")] = Path(),
    workload: Workload = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Compile only; run no workload.")] = False,
    gpu: Gpu = None,
) -> None:
    """Check the kernels below FOLDER; check one again when it, its workload or one of its headers is saved."""
    if not folder.is_dir():
        raise SourceError("This is not a folder.", folder, fix="Name the folder that your kernels lie in.")
    settings = settings_for(folder, gpu=gpu)
    with opened_store(settings) as store:
        asyncio.run(_watch(folder, settings, store, workload, run=not no_run))
        say_notices(store)


async def _watch(folder: Path, settings: Settings, store: Store, workload: Path | None, *, run: bool) -> None:
    """Watch until the user ends it; a terminal shows the state of all files, a pipe each report as it comes."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Checker(settings, store, workload=workload, run=run) as checker:
        with Live(console=err, auto_refresh=err.is_terminal, vertical_overflow="crop") as live:
            shown: set[int] = set()

            def show(status: FolderStatus) -> None:
                if err.is_terminal:
                    live.update(watch_view(status, folder))
                    return
                for report in status.reports.values():
                    if id(report) not in shown:
                        out.print(file_view(report, status.texts.get(report.path, "")))
                shown.clear()
                shown.update(id(report) for report in status.reports.values())

            watching = asyncio.create_task(watch_folder(folder, checker, show))
            await asyncio.wait({watching, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
