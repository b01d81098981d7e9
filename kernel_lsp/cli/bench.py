"""`kernel-lsp bench`: judge many candidates of a benchmark, and say what they come to."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from kernel_lsp.bench.plan import Asked, make_plan
from kernel_lsp.bench.records import Ledger
from kernel_lsp.bench.run import Progress, run_bench
from kernel_lsp.bench.suite import find_problems, find_samples, parse_numbers
from kernel_lsp.bench.totals import add_up
from kernel_lsp.cli.console import err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.main import CANNOT_JUDGE
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.errors import CannotJudgeError, ConfigurationError
from kernel_lsp.report.bench import bench_json, bench_view, totals_view
from kernel_lsp.report.page.bench import bench_page

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Judge many candidates of a benchmark."""


@app.command()
def kernelbench(
    candidates: Annotated[Path, typer.Option(metavar="DIR", help="Candidates under KernelBench's own names.")],
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="KernelBench's repository, where kernelbench.root is not set.")
    ] = None,
    level: Annotated[int | None, typer.Option(min=1, help="Problems of this level only.")] = None,
    problems: Annotated[str | None, typer.Option(metavar="NUMBERS", help="Such as 1,19,30-40; by default all.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs to judge on, one runner each; by default one.")] = None,
    compat: Annotated[
        bool, typer.Option("--compat", help="Also say what KernelBench's own method says of each candidate.")
    ] = False,
    compiled: Annotated[bool, typer.Option(help="Also time what is right against torch.compile.")] = True,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as one page.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where finished candidates are kept, a line each.")
    ] = None,
) -> None:
    """Judge a folder of candidates for KernelBench's problems.

    What the ledger has is not judged again: a run that was ended in any way goes on where it was. Without a GPU
    candidates run on the emulator, on problems scaled down, and nothing is timed.
    """
    settings = settings_for(root)
    root = root or settings.kernelbench.root
    if root is None:
        raise ConfigurationError("KernelBench's problems are not known.", cure="Name their folder with --root.")
    found = find_gpus()
    if gpus is not None and gpus > len(found):
        raise CannotJudgeError(f"{gpus} GPUs are asked for, and this machine shows {len(found)}.", cure="See --gpus.")
    used = found[: gpus or 1]
    chosen = find_problems(root, level, parse_numbers(problems) if problems else None)
    plan = make_plan(chosen, find_samples(candidates), settings, used)
    book = Ledger(ledger or settings.paths.data / "kernelbench.jsonl")
    with opened_store(settings) as store:
        live = Live(console=err, transient=True) if err.is_terminal else nullcontext()
        with live as shown:

            def show(progress: Progress) -> None:
                if shown is not None:
                    shown.update(bench_view(progress))

            progress = asyncio.run(run_bench(plan, Asked(compiled, compat), settings, book, store, used, show))
        say_notices(store)
    totals = add_up(progress.in_order, progress.judged, progress.seconds)
    if json is not None:
        _write(json, bench_json(progress, totals) + "\n")
    if html is not None:
        _write(html, bench_page(progress, totals, f"KernelBench: {candidates}"))
    out.print(totals_view(progress, totals), crop=False)
    if progress.troubles:
        raise typer.Exit(CANNOT_JUDGE)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The results cannot be written: {error.strerror}.", path) from None
