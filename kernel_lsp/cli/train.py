"""`kernel-lsp model train`: trains an adapter of a model, in a process of its own."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_lsp.cli.console import err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.options import Lanes, Pool
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.pool.choice import asked_pool
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.store.store import Store

if TYPE_CHECKING:
    from kernel_lsp.learn.training import TrainingEvent

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def train() -> None:
    """Train an adapter of a model on what the judge found."""


@app.command()
def sft(
    dataset: Annotated[Path | None, typer.Argument(help="A dataset of `kernel-lsp model collect`.")] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE[::KERNEL]|FOLDER", help="Kernels to draw answers about, in place of a dataset; repeatable."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of answering, judging and training, with --on.")] = 1,
    adapter: Annotated[str, typer.Option(help="A name for the adapter.")] = "sft",
    weights: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Weights of the base model, by default model.weights.")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="Rank of the adapter.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Times that each conversation is seen.")] = None,
    length: Annotated[int | None, typer.Option(min=64, help="Tokens of the longest conversation.")] = None,
    pool: Pool = None,
    gpus: Lanes = None,
    anew: Annotated[bool, typer.Option("--anew", help="Forget what was trained under this name.")] = False,
) -> None:
    """Fine-tune a LoRA adapter on the answers of a dataset, or in rounds on its own answers about kernels (--on).

    It begins from the base model, in each round too. Rounds need the model served here, with `--adapters`. Run it
    again to go on with one that was interrupted or killed.
    """
    from kernel_lsp.learn.sft import forget, plan_sft, run_sft
    from kernel_lsp.report.learning import planned_view

    settings = settings_for(learn__rank=rank, learn__epochs=epochs, learn__length=length, pool__address=pool)
    if (dataset is None) == (not on) or (dataset is not None and rounds > 1):
        fix = "Name a dataset to train on it, or kernels with `--on` to train on answers about them, in `--rounds`."
        raise ConfigurationError("Either a dataset or kernels can be trained on", fix=fix)
    if dataset is not None and (pool, gpus) != (None, None):
        raise ConfigurationError("--pool and --gpus are for --on: a dataset is judged already.", fix="Leave them out.")
    if anew:
        forget(adapter, settings)
    if dataset is None:
        _in_rounds(on or [], adapter, settings, rounds, weights, gpus)
        return
    planned = plan_sft(dataset, adapter, settings, weights)
    err.print(planned_view(planned))
    trained = asyncio.run(run_sft(planned, settings, _tell))
    out.print(f"{adapter} is in {trained}", markup=False)


def _in_rounds(
    kernels: list[str], adapter: str, settings: Settings, rounds: int, weights: Path | None, gpus: int | None
) -> None:
    from kernel_lsp.learn.rounds import Round, begin_rounds, plan_rounds, run_rounds
    from kernel_lsp.report.learning import round_text, rounds_table, rounds_view

    planned = plan_rounds(kernels, adapter, settings, rounds, weights)
    done: list[Round] = []

    def keep(one: Round) -> None:
        done.append(one)
        err.print(round_text(one), markup=False)

    async def run(store: Store, lanes: LanePool | None) -> Path:
        begun = await begin_rounds(planned, settings, store, status.update)
        err.print(rounds_view(begun))
        return await run_rounds(begun, settings, store, _tell, keep, status.update, lanes)

    try:
        with asked_pool(settings, gpus) as lanes, opened_store(settings) as store, err.status("") as status:
            trained = asyncio.run(run(store, lanes))
            say_notices(store)
    finally:
        if done:
            out.print(rounds_table(done))
    out.print(f"{adapter} is in {trained}", markup=False)


@app.command()
def grpo(
    kernels: Annotated[
        list[str],
        typer.Argument(metavar="FILE[::KERNEL]|FOLDER...", help="Kernels to learn on, captures, or folders of them."),
    ],
    adapter: Annotated[str, typer.Option(help="A name for the adapter.")] = "grpo",
    variants: Annotated[int, typer.Option(min=0, help="Variants of each kernel with other sizes, at most.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Steps in all; a run that is taken up may be given more.")] = 40,
    start: Annotated[str | None, typer.Option(metavar="NAME", help="Begin from this adapter.")] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Weights of the base model, by default model.weights.")
    ] = None,
    pool: Pool = None,
    gpus: Lanes = None,
    anew: Annotated[bool, typer.Option("--anew", help="Forget what was trained under this name.")] = False,
) -> None:
    """Train a LoRA adapter by reinforcement learning: answers are drawn from it, and the judge says what they earn.

    The model must be served here, with `--adapters`. Run it again to go on with one that was interrupted or killed.
    """
    from kernel_lsp.learn.grpo import run_grpo
    from kernel_lsp.learn.grpo_plan import begin, plan_grpo, require_strong
    from kernel_lsp.learn.sft import forget
    from kernel_lsp.report.learning import policy_view

    settings = settings_for(pool__address=pool)
    if anew:
        forget(adapter, settings)
    planned = plan_grpo(kernels, adapter, settings, steps, start, weights, variants)

    async def run(store: Store, lanes: LanePool | None) -> Path:
        strong = await require_strong(planned, settings, store, status.update)
        err.print(policy_view(strong))
        begin(strong)
        return await run_grpo(strong, settings, store, _tell, status.update, lanes)

    with asked_pool(settings, gpus) as lanes, opened_store(settings) as store, err.status("") as status:
        trained = asyncio.run(run(store, lanes))
        say_notices(store)
    out.print(f"{adapter} is in {trained}", markup=False)


def _tell(event: "TrainingEvent") -> None:
    """Say what a trainer reports."""
    from kernel_lsp.report.learning import event_text

    err.print(event_text(event), markup=False)
