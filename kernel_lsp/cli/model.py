"""`kernel-lsp model`: see which models are served here, agree to one elsewhere, make data to train one on.

Serving one is a distribution of its own, `server/`, which adds its commands by the entry point `kernel_lsp.commands`.
"""

from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from kernel_lsp.cli.adapters import app as adapters_app
from kernel_lsp.cli.console import out
from kernel_lsp.cli.options import Json
from kernel_lsp.cli.train import app as train_app
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.learn.prune import BestOf, Keep

SERVED = ("serve", "fit", "list", "stop")
"""Commands of `server/`; where it is missing, each says how to get it."""


class _WithServed(TyperGroup):
    """The commands here and those of the server's distribution."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return [*SERVED, *super().list_commands(ctx)]

    def get_command(self, ctx: typer.Context, cmd_name: str):  # pyright: ignore[reportIncompatibleMethodOverride]
        if cmd_name not in SERVED:
            return super().get_command(ctx, cmd_name)
        return self._served.get_command(ctx, cmd_name)

    @cached_property
    def _served(self) -> TyperGroup:
        """Return the commands of the server's distribution, or the same names, each of which says it is missing."""
        for point in entry_points(group="kernel_lsp.commands", name="model"):
            return typer.main.get_group(point.load())
        missing = typer.Typer()
        for name in SERVED:
            settings = {"ignore_unknown_options": True, "allow_extra_args": True}
            missing.command(name, context_settings=settings, help="(needs kernel-model-server)")(_say_it_is_missing)
        return typer.main.get_group(missing)


Kept = Annotated[Keep, typer.Option(help="The least that an answer must be; `right` where nothing can be timed.")]
Grouped = Annotated[BestOf, typer.Option(help="Keep only the best turn of each trajectory or kernel, or all.")]

app = typer.Typer(cls=_WithServed, add_completion=False, no_args_is_help=True)


@app.callback()
def model() -> None:
    """Serve a language model on this machine, agree to use one elsewhere, or train one on what the judge found."""


@app.command()
def status(json: Json = False) -> None:
    """List the model servers that run on this machine."""
    from kernel_lsp.model.servers import running
    from kernel_lsp.report.machine import records_json
    from kernel_lsp.report.models import servers_view

    servers = [server.model_copy(update={"key": None}) for server in running()]
    if json:
        typer.echo(records_json(servers))
    else:
        out.print(servers_view(servers))


@app.command()
def allow(
    host: Annotated[str | None, typer.Argument(help="The host; without one, those allowed are listed.")] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Agree no more.")] = False,
) -> None:
    """Agree that prompts with your source code are sent to a host that `model.endpoint` names."""
    from kernel_lsp.model.endpoint import allow_host, allowed_hosts

    if host is not None:
        allow_host(host, allowed=not withdraw)
    for known in allowed_hosts():
        out.print(known, markup=False)


@app.command()
def collect(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the dataset.")],
    source: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Folder of the store, by default paths.data.")
    ] = None,
    keep: Kept = Keep.FASTER,
    best: Grouped = BestOf.TRAJECTORY,
    this_judge: Annotated[
        bool, typer.Option("--this-judge", help="Count only verdicts of the judge as it is installed now.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a dataset of what models answered in searches and what the judge found: conversations to learn from.

    A part of the kernels is held out, to compare models on. A project whose settings say `learn.collect = false` is
    left out. The folder holds your source code; nothing leaves this machine.
    """
    from kernel_lsp.cli.console import opened_store, say_notices, settings_for
    from kernel_lsp.judge.measure.digest import policy_digest
    from kernel_lsp.learn.collect import collect as collected_from
    from kernel_lsp.learn.prune import Rules
    from kernel_lsp.report.learning import collected_view
    from kernel_lsp.report.machine import records_json

    settings = settings_for(paths__data=source)
    if source is not None and not source.is_dir():
        raise ConfigurationError("There is no such folder", source, fix="Name the folder that `paths.data` was.")
    with opened_store(settings) as store:
        rules = Rules(keep, best, policy_digest() if this_judge else None)
        found = collected_from(store, folder, rules, settings.learn.held_out)
        say_notices(store)
    if json:
        typer.echo(records_json(found))
    else:
        out.print(collected_view(found))


@app.command("eval")
def evaluate(
    name: Annotated[str, typer.Argument(help="The adapter.")],
    kernels: Annotated[list[str], typer.Argument(metavar="FILE[::KERNEL]...", help="Kernels it was not trained on.")],
    samples: Annotated[int, typer.Option(min=1, help="Trajectories on each kernel, on each side.")] = 8,
    turns: Annotated[int | None, typer.Option(min=1, help="Answers in a trajectory; by default learn.turns.")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens that a trajectory may spend, on either side.")] = 32768,
    json: Json = False,
) -> None:
    """Compare an adapter with its base on kernels that it was not trained on, by what the judge says.

    Better is only what is so beyond doubt: the interval of the paired difference over kernels lies above zero.
    """
    import asyncio

    from kernel_lsp.cli.console import err, opened_store, say_notices, settings_for
    from kernel_lsp.learn.evaluate import Trials
    from kernel_lsp.learn.evaluate import evaluate as compared
    from kernel_lsp.report.adapters import comparison_view
    from kernel_lsp.report.machine import records_json

    settings = settings_for()
    trials = Trials(samples, turns or settings.learn.turns, tokens)
    with opened_store(settings) as store, err.status("") as status:
        found = asyncio.run(compared(name, kernels, trials, settings, store, status.update))
        say_notices(store)
    if json:
        typer.echo(records_json(found))
    else:
        out.print(comparison_view(found))


app.add_typer(train_app, name="train")
app.add_typer(adapters_app, name="adapters")


def _say_it_is_missing() -> None:
    raise ConfigurationError(
        "Serving models on this machine is a package of its own, kernel-model-server, which is not installed.",
        fix="In a clone of Kernel LSP: `pip install -e 'server[vllm]'`. For one elsewhere, set `model.endpoint`.",
    )
