"""`kernel-lsp check`: checks that kernels compile, run, give right results, and cost no more than before."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from kernel_lsp.capture.run import capture_program, program_name
from kernel_lsp.check import FileReport, find_kernel_files, kernel_files_among, record_baseline
from kernel_lsp.check import check as check_files
from kernel_lsp.check.baseline import find_root
from kernel_lsp.check.lane import CHECK_FILE, CheckCalls
from kernel_lsp.check.program import check_program
from kernel_lsp.cli.console import err, opened_store, out, say_note, say_notices, settings_for
from kernel_lsp.cli.main import CANNOT_JUDGE, FINDINGS, UNUSABLE
from kernel_lsp.cli.options import Gpu, Json, Lanes, Pool, Workload
from kernel_lsp.compiler.toolchain.emulated import program_gpu
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import ConfigurationError, SourceError
from kernel_lsp.pool.choice import asked_pool
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.report.check import file_view, recorded_view, summary_view
from kernel_lsp.report.formats import FORMATS, CheckResults, FormatName
from kernel_lsp.report.program import left_out, program_json, program_view
from kernel_lsp.rules.catalog import require_silenceable
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import Store
from kernel_lsp.workload.capture import FOLDER

app = typer.Typer(add_completion=False)


@app.command()
def check(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATHS...", help="Kernel files, or folders of them; with --run a command.")
    ],
    workload: Workload = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Instead run a program, your tests perhaps, on the emulator: --run -- pytest tests"),
    ] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Compile only; run no workload.")] = False,
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
    pool: Pool = None,
    gpus: Lanes = None,
    gpu: Gpu = None,
    json: Json = False,
) -> None:
    """Compile kernels, run their workloads and compare with the references. Ends with 1 when something is wrong.

    With --run a program of yours runs instead, without a GPU: what its Triton kernels do wrong is reported at their
    lines. Its output goes to standard error; this command ends with 1 as well if the program fails.
    """
    form = FormatName.JSON if json else form
    if run:
        if workload or no_run or update_baseline or changed or strength or pool or gpus:
            fix = "Leave the others out; a program may be given --strict, --format, --output and --json."
            raise ConfigurationError("--run takes a program instead of kernel files.", fix=fix)
        _run_program(paths, settings_for(Path.cwd() / "here", check__strict=strict), form, output)
        return
    named = [Path(path) for path in paths]
    unread: list[SourceError] = []
    sources = kernel_files_among(named, related=True) if changed else find_kernel_files(named, unread.append)
    if not sources:
        return
    settings = settings_for(named[0], gpu=gpu, check__strict=strict, pool__address=pool)
    if strength:
        if pool or gpus:
            fix = "Leave --pool and --gpus out."
            raise ConfigurationError("--strength plants bugs on this machine's first GPU.", fix=fix)
        from kernel_lsp.cli.strength import show_strength  # few ask for it

        show_strength(sources, settings, workload, verbose=verbose, json=json)
        return
    quiet = form is not None and output is None
    with asked_pool(settings, gpus) as lanes, opened_store(settings) as store:
        reports = asyncio.run(
            _check(sources, settings, store, workload, lanes, run=not no_run, record=update_baseline, quiet=quiet)
        )
        say_notices(store)
    if update_baseline:
        err.print(recorded_view(record_baseline(reports), reports))
    texts = {str(source.path): source.text for source in sources}
    results = CheckResults(reports, texts, find_root(Path.cwd() / "here"), strict=settings.check.strict)
    if form is not None:
        _write(FORMATS[form](results), output)
    if not quiet:
        out.print(summary_view(reports, unread, strict=settings.check.strict))
    else:
        for error in unread:
            say_note(f"not read: {error}")
    if not results.passed:
        raise typer.Exit(FINDINGS)
    if unread:
        raise typer.Exit(UNUSABLE)


def _run_program(command: list[str], settings: Settings, form: FormatName | None, output: Path | None) -> None:
    """Run a program on the emulator, show what was found, and pick the exit code.

    Raises:
        typer.Exit: with 1 for findings or a program that failed; with 3 if no kernel could be run.
    """
    require_silenceable(settings.check.ignore)
    captured = capture_program(command, FOLDER, emulate=program_gpu(settings.arch), aside=True)
    checked = check_program(program_name(command), captured, settings)
    results = CheckResults(checked.reports, checked.texts, find_root(Path.cwd() / "here"), strict=settings.check.strict)
    if form is not None:
        _write(program_json(checked) if form is FormatName.JSON else FORMATS[form](results), output)
    if form is None or output is not None:
        out.print(program_view(checked, strict=settings.check.strict))
    elif form is not FormatName.JSON:
        for said in left_out(checked):
            say_note(said)
    if not results.passed or checked.exit_code:
        raise typer.Exit(FINDINGS)
    if not checked.emulated.kernels:
        raise typer.Exit(CANNOT_JUDGE)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"The results cannot be written: {error.strerror}."
        raise ConfigurationError(message, output, fix="Check the folder.") from None


async def _check(
    sources: tuple[SourceFile, ...],
    settings: Settings,
    store: Store,
    workload: Path | None,
    lanes: LanePool | None,
    *,
    run: bool,
    record: bool,
    quiet: bool,
) -> list[FileReport]:
    texts = {source.path: source.text for source in sources}
    width = min(max(len(str(path)) for path in texts), out.width // 2)
    done, doing = 0, ""
    async with AsyncExitStack() as stack:
        status = stack.enter_context(err.status(f"checking {len(sources)} files"))

        def update() -> None:
            status.update(Text(f"checking, {done} of {len(sources)} done{doing}"))

        def say(lane: str, what: str) -> None:
            nonlocal doing
            doing = f"; {lane}: {what}"
            update()

        def show(report: FileReport) -> None:
            nonlocal done
            done += 1
            update()
            if not quiet:
                out.print(file_view(report, texts[report.path], width))

        calls = await stack.enter_async_context(CheckCalls(lanes, CHECK_FILE, say)) if lanes else None
        return await check_files(
            sources, settings, show, store=store, workload=workload, run=run, record=record, lanes=calls
        )
