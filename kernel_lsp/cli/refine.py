"""`kernel-lsp refine`: searches for a faster variant, and offers it only when it is proved."""

import asyncio
import signal
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.live import Live

from kernel_lsp.cli.apply import apply_changes
from kernel_lsp.cli.console import (
    choices,
    err,
    opened_store,
    out,
    say_note,
    say_notices,
    say_other_workloads,
    settings_for,
)
from kernel_lsp.cli.main import FINDINGS, INTERRUPTED
from kernel_lsp.cli.options import Gpu, Json, Workload
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.pool.choice import opened_pool
from kernel_lsp.refine.batch import advance_batch, begin_batch
from kernel_lsp.refine.kernel_generation import LANGUAGES, is_plain_module, new_path, require_room
from kernel_lsp.refine.outcome import Refinement
from kernel_lsp.refine.progress import SearchProgress
from kernel_lsp.refine.run import refine_target, require_gpu, require_way, variant_changes
from kernel_lsp.report.diff import diff_view, unified_diff
from kernel_lsp.report.live import progress_view
from kernel_lsp.report.machine import refinement_json
from kernel_lsp.report.search import attempts_view, turn_view
from kernel_lsp.report.terminal import VerdictCard
from kernel_lsp.store.store import Store

app = typer.Typer(add_completion=False)


@app.command()
def refine(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="FILE[::KERNEL]", help="A kernel file, or one kernel in it.")
    ] = None,
    workload: Workload = None,
    budget: Annotated[str | None, typer.Option(help="Time from now, with measuring the kernel: 120s or 5m.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Write the variant found into the file.")] = False,
    write: Annotated[
        str | None,
        typer.Option(metavar="|".join(choices("write")), help="Language of a kernel for a plain PyTorch module."),
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print the variant found as a unified diff, and nothing else.")
    ] = False,
    strategy: Annotated[
        str | None, typer.Option(help=f"How the search asks a model: {', '.join(choices('strategy'))}.")
    ] = None,
    turn_batch: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Refine many kernels a turn at a time; a model answers from files in DIR."),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(metavar="local|ray|ray://HOST:PORT|slurm:N", help="With --turn-batch: where to judge."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of one kind to race, or with --turn-batch judge, on; by default one."),
    ] = None,
    gpu: Gpu = None,
    json: Json = False,
) -> None:
    """Search for a faster variant of a kernel, or for a kernel for a PyTorch module; Ctrl-C keeps what was found."""
    if turn_batch is not None:
        _take_turn(turn_batch, targets or [], settings_for(gpu=gpu, refine__write=write, pool__address=pool), gpus)
        return
    if pool is not None:
        fix = "Leave it out; --gpus races one kernel's candidates on several GPUs of this machine."
        raise ConfigurationError("--pool is for --turn-batch.", fix=fix)
    if targets is None or len(targets) != 1:
        fix = "Name one file; or give a folder with --turn-batch to refine many kernels a turn at a time."
        raise ConfigurationError(f"`refine` works on one kernel file, and {len(targets or [])} are named.", fix=fix)
    file, _, kernel = targets[0].partition("::")
    asked = {"budget": budget, "strategy": strategy, "write": write, "gpus": gpus}
    settings = settings_for(Path(file), gpu=gpu, **{f"refine__{name}": value for name, value in asked.items()})
    aim = make_target(
        Path(file), kernel or None, workload, problems=settings.kernelbench.root, folders=settings.workloads
    )
    if workload is None:
        say_other_workloads(aim, settings)
    require_gpu(settings)
    require_way(aim.source, settings)
    if is_plain_module(aim.source):
        if apply and settings.refine.write:
            require_room(new_path(aim.source.path, LANGUAGES[settings.refine.write]))
    elif write is not None:
        fix = "Leave out --write: they are refined in the language that they are written in."
        raise ConfigurationError(f"--write {write} is for a plain PyTorch module; this file has kernels.", fix=fix)
    with opened_store(settings) as store:
        try:
            found = asyncio.run(_refine(aim, settings, store))
            changes = variant_changes(aim, found)
            patch = "".join(unified_diff(change.path, change.before, change.after) for change in changes)
            if json:
                typer.echo(refinement_json(found, patch))
            elif diff:
                _print_diff(patch)
                err.print(found.reason, markup=False)
            else:
                _print_outcome(found, store)
            if apply and changes:
                apply_changes(changes)
                err.print(f"Written: {', '.join(str(change.path) for change in changes)}", markup=False)
        finally:
            say_notices(store)
    if found.cancelled:
        raise typer.Exit(INTERRUPTED)


def _take_turn(folder: Path, kernels: list[str], settings: Settings, gpus: int | None) -> None:
    """Advance a batch as far as there are answers."""
    batch = begin_batch(folder, kernels, settings)
    with opened_pool(settings, gpus) as pool, opened_store(settings) as store, err.status("") as status:
        stand = asyncio.run(advance_batch(batch, settings, store, pool, status.update))
        say_notices(store)
    for trouble in stand.troubles:
        err.print(trouble, markup=False)
    out.print(turn_view(batch, stand))
    if stand.troubles:
        raise typer.Exit(FINDINGS)


async def _refine(target: Target, settings: Settings, store: Store) -> Refinement:
    stop = asyncio.Event()
    with ExitStack() as shown:
        shown.enter_context(err.status("building and measuring the baseline"))
        view = _View(settings.refine.budget)

        def begin() -> None:
            shown.close()
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
            shown.enter_context(view)

        return await refine_target(
            target,
            settings,
            store,
            stop,
            on_open=begin,
            on_progress=view.show,
            say=say_note,
            gpus=settings.refine.gpus,
        )


class _View:
    """The live view; its clock advances between the search's own reports."""

    def __init__(self, budget: float) -> None:
        self._started = time.perf_counter()
        self._progress = SearchProgress("starting", 0, 0, 0, 0, 0.0, budget)
        self._live = Live(console=err, get_renderable=self._render, transient=True)

    def __enter__(self) -> "_View":
        if err.is_watched:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: SearchProgress) -> None:
        """Show the search's latest report."""
        self._progress = progress

    def _render(self) -> RenderableType:
        return progress_view(replace(self._progress, elapsed=time.perf_counter() - self._started))


def _print_outcome(found: Refinement, store: Store) -> None:
    if found.best is not None:
        out.print(VerdictCard(found.best, store.short_id(found.best.id)), crop=False)
    else:
        out.print(found.reason, markup=False)
    out.print(attempts_view(found))
    for note in found.notes:
        err.print(note, markup=False)


def _print_diff(patch: str) -> None:
    if out.is_terminal:
        out.print(diff_view(patch), end="")
    else:
        typer.echo(patch, nl=False)
