"""`kernel-lsp profile`: shows what each line of a file's kernels executes, moves and, on a GPU, waits for."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.check import FileReport, find_kernel_files
from kernel_lsp.check import check as check_files
from kernel_lsp.check.gpu_lines import GpuLines, measure_lines
from kernel_lsp.check.profile import profile_of
from kernel_lsp.cli.console import err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.main import CANNOT_JUDGE
from kernel_lsp.cli.options import Json, Workload
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu, find_device
from kernel_lsp.errors import SourceError
from kernel_lsp.judge.target import make_targets
from kernel_lsp.report.machine import records_json
from kernel_lsp.report.profile import profile_view
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import Store

app = typer.Typer(add_completion=False)


@app.command()
def profile(
    file: Annotated[Path, typer.Argument(help="A kernel file.")],
    workload: Workload = None,
    price: Annotated[
        bool,
        typer.Option("--price", help="On a GPU also the time saved without each line's accesses, barrier or loop."),
    ] = False,
    json: Json = False,
) -> None:
    """Show what each line of a file's kernels executes and moves, counted by the emulator on its small cases.

    On a machine with a GPU, ncu also samples where their warps wait, on the largest case that can be recorded; where
    it may not read counters, each line gets its price: the time that is saved without it.
    """
    if file.is_dir():
        raise SourceError("This is a folder; one file is profiled.", file, fix="Name a kernel file in it.")
    settings = settings_for(file)
    source = find_kernel_files([file])[0]
    with opened_store(settings) as store, err.status(f"running {file} on the emulator"):
        report = asyncio.run(_checked(source, settings, store, workload))
        say_notices(store)
    told = asyncio.run(_measured(source, settings, workload, prices=price)) if report.workloads else None
    found = profile_of(report, source.text, find_device(settings.gpu, settings.arch), told)
    if json:
        typer.echo(records_json(found))
    else:
        out.print(profile_view(found), crop=False)
    if not found.kernels:
        raise typer.Exit(CANNOT_JUDGE)


async def _checked(source: SourceFile, settings: Settings, store: Store, workload: Path | None) -> FileReport:
    """Return the report of the file's check, which is looked up if nothing has changed."""
    return (await check_files((source,), settings, lambda _: None, store=store, workload=workload))[0]


async def _measured(source: SourceFile, settings: Settings, workload: Path | None, *, prices: bool) -> GpuLines | None:
    """Return what the GPU tells of the lines; None without one."""
    gpu = choose_gpu(settings.gpu)
    if gpu is None:
        return None
    problems, folders = settings.kernelbench.root, settings.workloads
    target = make_targets(source.path, workload=workload, problems=problems, folders=folders)[0]
    with err.status(f"measuring the lines of {source.path} on {gpu.name}"):
        async with Pool(warm_minutes=settings.runner.warm_minutes) as pool:
            return await measure_lines(pool, target, settings, gpu, prices=prices)
