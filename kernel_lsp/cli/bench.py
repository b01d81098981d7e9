"""`kernel-lsp bench`: judges many candidates of a benchmark, perhaps after searching for them, and adds up."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import RenderableType
from rich.live import Live

from kernel_lsp.bench.plan import Comparisons, make_plan
from kernel_lsp.bench.proposing import plan_searches, search_problems
from kernel_lsp.bench.records import Ledger, Search
from kernel_lsp.bench.run import BenchProgress, run_bench
from kernel_lsp.bench.totals import add_up
from kernel_lsp.cli.console import choices, err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.main import CANNOT_JUDGE
from kernel_lsp.cli.options import Gpu, Pool
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.pool.choice import opened_pool
from kernel_lsp.report.bench import bench_json, bench_view, searching_view, totals_view
from kernel_lsp.report.bench_events import BenchEvents
from kernel_lsp.report.page.bench import bench_page
from kernel_lsp.workload.suite import find_problems, find_samples, parse_numbers

app = typer.Typer(add_completion=False, no_args_is_help=True)
_Stand = TypeVar("_Stand")


@app.callback()
def bench() -> None:
    """Judge many candidates of a benchmark."""


@app.command()
def kernelbench(
    candidates: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Candidates under KernelBench's own names.")
    ] = None,
    propose: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Search for candidates instead, and write them to this folder.")
    ] = None,
    write: Annotated[
        str | None,
        typer.Option(metavar="|".join(choices("write")), help="With --propose: the candidates' language."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="With --propose: time for the search of one problem, such as 120s or 5m.")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help=f"With --propose: how it asks a model: {', '.join(choices('strategy'))}.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="KernelBench's repository, where kernelbench.root is not set.")
    ] = None,
    level: Annotated[int | None, typer.Option(min=1, help="Problems of this level only.")] = None,
    problems: Annotated[str | None, typer.Option(metavar="NUMBERS", help="Such as 1,19,30-40; by default all.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs to judge on, one runner each; by default one.")] = None,
    gpu: Gpu = None,
    pool: Pool = None,
    compat: Annotated[
        bool, typer.Option("--compat", help="Also say what KernelBench's own method says of each candidate.")
    ] = False,
    compiled: Annotated[bool, typer.Option(help="Also time what is right against torch.compile.")] = True,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as one page.")] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write verdicts and what lanes do as they come, as JSON lines.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where finished candidates are kept, a line each.")
    ] = None,
) -> None:
    """Judge candidates for KernelBench's problems: a folder of them, or what the served model writes.

    Entries of the ledger are not searched or judged again: a run that was ended goes on where it was. Without a GPU
    candidates run on the emulator, on problems scaled down, and nothing is timed; a search then needs
    `refine.untimed`, and finds what is right, never what is faster.
    """
    if (candidates is None) == (propose is None):
        fix = "Name a folder of candidates with --candidates, or one to write them to with --propose."
        raise ConfigurationError("Candidates are either there or searched for.", fix=fix)
    if propose is None and (write, budget, strategy) != (None, None, None):
        raise ConfigurationError("--write, --budget and --strategy are for --propose.", fix="Leave them out.")
    settings = settings_for(
        root, gpu=gpu, refine__write=write, refine__budget=budget, refine__strategy=strategy, pool__address=pool
    )
    root = root or settings.kernelbench.root
    if root is None:
        raise ConfigurationError("KernelBench's problems are not known.", fix="Name their folder with --root.")
    if propose and settings.pool.address != "local":
        fix = "Search with --pool local; what is found can be judged on a pool with --candidates."
        raise ConfigurationError("A search runs on this machine's GPUs.", fix=fix)
    chosen = find_problems(root, level, parse_numbers(problems) if problems else None)
    book = Ledger(ledger or settings.paths.data / "kernelbench.jsonl")
    samples = find_samples(candidates) if candidates else ()
    with opened_pool(settings, gpus) as lanes, opened_store(settings) as store:
        troubles: dict[str, str] = {}
        searches: tuple[Search, ...] = ()
        if propose:
            tasks = plan_searches(chosen, propose, settings, lanes.gpus)
            with _live(searching_view) as show:
                searching = asyncio.run(search_problems(tasks, settings, book, store, lanes.gpus, show))
            samples, searches, troubles = searching.samples, tuple(searching.in_order), searching.troubles
        plan = replace(make_plan(chosen, samples, settings, lanes.gpus, lanes.versions), searches=searches)
        with _live(bench_view) as view, _events(events) as tell:

            def both(stand: BenchProgress) -> None:
                view(stand)
                tell(stand)

            progress = asyncio.run(run_bench(plan, Comparisons(compiled, compat), book, store, lanes, both))
        progress.troubles |= troubles
        say_notices(store)
    unanswered = len(chosen) - len(progress.in_order) if propose else 0
    totals = add_up(progress.in_order, progress.judged, progress.seconds, unanswered)
    if json is not None:
        _write(json, bench_json(progress, totals) + "\n")
    if html is not None:
        _write(html, bench_page(progress, totals, f"KernelBench: {candidates or propose}"))
    out.print(totals_view(progress, totals), crop=False)
    if progress.troubles:
        raise typer.Exit(CANNOT_JUDGE)


@contextmanager
def _live(view: Callable[[_Stand], RenderableType]) -> Generator[Callable[[_Stand], None]]:
    """Show a live view on a terminal; yields a function that updates it."""
    if not err.is_watched:
        yield lambda _: None
        return
    with Live(console=err, transient=True) as shown:
        yield lambda stand: shown.update(view(stand))


@contextmanager
def _events(path: Path | None) -> Generator[Callable[[BenchProgress], None]]:
    """Write a file of events; yields a function that adds to it what has changed."""
    if path is None:
        yield lambda _: None
        return
    try:
        file = path.open("w", encoding="utf-8", buffering=1)
    except OSError as error:
        raise ConfigurationError(f"The events cannot be written: {error.strerror}.", path) from None
    with file:
        yield BenchEvents(file.write)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The results cannot be written: {error.strerror}.", path) from None
