"""`kernel-lsp check`: do kernels compile, run and give the right answers as they stand?"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.cli.console import Json, Workload, err, out, settings_for
from kernel_lsp.cli.main import FINDINGS
from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.check import FileReport, find_kernel_files
from kernel_lsp.judge.check import check as check_files
from kernel_lsp.report.check import file_view, summary_view
from kernel_lsp.report.machine import check_json
from kernel_lsp.source.candidate import SourceFile

app = typer.Typer(add_completion=False)


@app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(help="Kernel files, or folders of them.")],
    workload: Workload = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Also run the workloads, not only compile.")] = True,
    json: Json = False,
) -> None:
    """Compile kernels, run their workloads and compare with the references. Ends with 1 when something is wrong."""
    sources = find_kernel_files(paths)
    reports = asyncio.run(_check(sources, settings_for(paths[0]), workload, run=run, quiet=json))
    if json:
        typer.echo(check_json(reports))
    else:
        out.print(summary_view(reports))
    if not all(report.ok for report in reports):
        raise typer.Exit(FINDINGS)


async def _check(
    sources: tuple[SourceFile, ...], settings: Settings, workload: Path | None, *, run: bool, quiet: bool
) -> list[FileReport]:
    texts = {source.path: source.text for source in sources}
    width = max(len(str(path)) for path in texts)
    done = 0
    with err.status(f"checking {len(sources)} files") as status:

        def show(report: FileReport) -> None:
            nonlocal done
            done += 1
            status.update(f"checking, {done} of {len(sources)} done")
            if not quiet:
                out.print(file_view(report, texts[report.path], width))

        return await check_files(sources, settings, show, workload=workload, run=run)
