"""`kernel-lsp check`: checks that kernels compile, run, give right results, and cost no more than before."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.check import FileReport, find_kernel_files, kernel_files_among, record_baseline
from kernel_lsp.check import check as check_files
from kernel_lsp.check.baseline import find_root
from kernel_lsp.cli.console import err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.main import FINDINGS
from kernel_lsp.cli.options import Gpu, Json, Workload
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.report.check import file_view, recorded_view, summary_view
from kernel_lsp.report.formats import FORMATS, CheckResults, FormatName
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import Store

app = typer.Typer(add_completion=False)


@app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(help="Kernel files, or folders of them.")],
    workload: Workload = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Also run the workloads, not only compile.")] = True,
    form: Annotated[FormatName | None, typer.Option("--format", help="Print this instead of the report.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write what --format asks for to this file.")] = None,
    strict: Annotated[bool | None, typer.Option("--strict", help="Fail on warnings, too.")] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Record registers, occupancy and times as what to hold to.")
    ] = False,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="PATHS are what changed: a workload or header means its kernels."),
    ] = False,
    strength: Annotated[
        bool,
        typer.Option(
            "--strength", help="Instead plant bugs in the kernels, one at a time, and show which the workloads miss."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --strength: show the bugs that are caught, too.")] = (
        False
    ),
    gpu: Gpu = None,
    json: Json = False,
) -> None:
    """Compile kernels, run their workloads and compare with the references. Ends with 1 when something is wrong."""
    sources = kernel_files_among(paths, related=True) if changed else find_kernel_files(paths)
    if not sources:
        return
    settings = settings_for(paths[0], gpu=gpu, check__strict=strict)
    if strength:
        from kernel_lsp.cli.strength import show_strength  # few ask for it

        show_strength(sources, settings, workload, verbose=verbose, json=json)
        return
    form = FormatName.JSON if json else form
    quiet = form is not None and output is None
    with opened_store(settings) as store:
        reports = asyncio.run(_check(sources, settings, store, workload, run=run, record=update_baseline, quiet=quiet))
        say_notices(store)
    if update_baseline:
        err.print(recorded_view(record_baseline(reports), reports))
    texts = {str(source.path): source.text for source in sources}
    results = CheckResults(reports, texts, find_root(Path.cwd() / "here"), strict=settings.check.strict)
    if form is not None:
        _write(FORMATS[form](results), output)
    if not quiet:
        out.print(summary_view(reports, strict=settings.check.strict))
    if not results.passed:
        raise typer.Exit(FINDINGS)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"The results cannot be written: {error.strerror}."
        raise ConfigurationError(message, output, cure="Check the folder.") from None


async def _check(
    sources: tuple[SourceFile, ...],
    settings: Settings,
    store: Store,
    workload: Path | None,
    *,
    run: bool,
    record: bool,
    quiet: bool,
) -> list[FileReport]:
    texts = {source.path: source.text for source in sources}
    width = min(max(len(str(path)) for path in texts), out.width // 2)
    done = 0
    with err.status(f"checking {len(sources)} files") as status:

        def show(report: FileReport) -> None:
            nonlocal done
            done += 1
            status.update(f"checking, {done} of {len(sources)} done")
            if not quiet:
                out.print(file_view(report, texts[report.path], width))

        return await check_files(sources, settings, show, store=store, workload=workload, run=run, record=record)
