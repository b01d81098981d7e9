"""The commands of `kernel-lsp model` that plan, start and end servers.

`kernel_lsp.cli.model` finds `app` by the entry point `kernel_lsp.commands`.
"""

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from kernel_lsp.cli.console import err, out, settings_for
from kernel_lsp.cli.options import Json
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.model.errors import ModelError, NoWeightsError
from kernel_lsp.model.profile import find_profile, profiles
from kernel_lsp.model.servers import ModelServer, servers_folder
from kernel_lsp.report.machine import records_json
from kernel_lsp.report.models import profiles_view
from kernel_model_server import launch
from kernel_model_server.fit import Wish
from kernel_model_server.vllm import Loading
from kernel_model_server.weights import find_weights

app = typer.Typer(add_completion=False, no_args_is_help=True)

What = Annotated[
    str | None, typer.Argument(metavar="[PROFILE|FOLDER]", help="A profile, or a model's folder; else model.profile.")
]
WeightsFolder = Annotated[Path | None, typer.Option("--weights", help="The folder of the profile's weights.")]
As = Annotated[str | None, typer.Option("--profile", help="The profile of a model that is named by its folder.")]
As16 = Annotated[str | None, typer.Option("--dtype", metavar="[bf16|fp8|4bit]", help="How weights are held.")]
Context = Annotated[int | None, typer.Option(min=1, help="Tokens of prompt and answer together.")]
Gpus = Annotated[int | None, typer.Option(min=1, help="How many GPUs of this machine.")]
Ray = Annotated[int | None, typer.Option(min=1, help="GPUs of a Ray cluster, these included.")]


@app.command()
def serve(
    what: What = None,
    adapter: Annotated[list[str] | None, typer.Option(metavar="NAME=FOLDER", help="A LoRA adapter beside it.")] = None,
    adapters: Annotated[
        bool | None,
        typer.Option("--adapters/--no-adapters", help="Be ready for adapters; by default if some were trained here."),
    ] = None,
    weights: WeightsFolder = None,
    profile: As = None,
    dtype: As16 = None,
    context: Context = None,
    gpus: Gpus = None,
    ray: Ray = None,
    attached: Annotated[bool, typer.Option("--attached", help="Stay, and end the server with this command.")] = False,
    adopt: Annotated[
        str | None, typer.Option(metavar="URL", help="Take turns with a server that somebody else started.")
    ] = None,
) -> None:
    """Start vLLM with a model; it stays until `kernel-lsp model stop`. One that runs already is used as it is."""
    settings = settings_for()
    if adopt is not None:
        folder = _adopted(adopt, what)
    else:
        planned = launch.plan(
            what,
            settings,
            profile=profile,
            weights=weights,
            adapters=_adapters(adapter or []),
            ready=adapters,
            wish=_wish(dtype, context, gpus, ray),
        )
        err.print(f"[bold]{planned.name}[/] from {planned.weights.folder}\n  {planned.why}", highlight=False)
        folder = launch.start(planned, attached=attached)
    server = _shown_until_ready(folder)
    out.print(f"{', '.join(server.models)} ready at {server.uds or server.url}", markup=False)
    if attached:
        launch.stay(folder)


@app.command()
def fit(
    what: What = None,
    weights: WeightsFolder = None,
    profile: As = None,
    dtype: As16 = None,
    context: Context = None,
    gpus: Gpus = None,
    ray: Ray = None,
) -> None:
    """Say how a model would be served on this machine's GPUs, and why; nothing is started."""
    settings, folder = settings_for(), weights
    if what is not None and launch.is_folder(what):
        known, folder = find_profile(profile or "general"), Path(what)
    else:
        known = find_profile(what or profile or settings.model.profile)
    try:
        found = find_weights(known, settings, folder)
    except NoWeightsError as error:
        if known.memory is None:
            raise
        found = None
        err.print(str(error), style="dim", markup=False)
    out.print(str(launch.fit(known, found, settings, _wish(dtype, context, gpus, ray))), markup=False)


@app.command("list")
def list_profiles(json: Json = False) -> None:
    """List the profiles, and which models are on this machine."""
    if json:
        typer.echo(records_json(list(profiles().values())))
        return
    settings, found = settings_for(), dict[str, Path]()
    for profile in profiles().values():
        try:
            found[profile.id] = find_weights(profile, settings).folder
        except ModelError:
            continue
    out.print(profiles_view(list(profiles().values()), found))


@app.command()
def stop(name: Annotated[str | None, typer.Argument(help="One of those running; else all.")] = None) -> None:
    """End model servers, also such as are still starting; one that was adopted is left alone from now on."""
    folders = [folder for folder in sorted(servers_folder().iterdir()) if name in (None, folder.name)]
    stopped = [folder.name for folder in folders if launch.stop(folder)]
    if not stopped and name is not None:
        raise ConfigurationError(f"No model server `{name}` is running.", fix="`kernel-lsp model status` lists them.")
    out.print(f"stopped {', '.join(stopped)}" if stopped else "no model server is running", markup=False)


def _adopted(url: str, model: str | None) -> Path:
    settings = settings_for()
    if model is None:
        raise ConfigurationError("Which model does it serve?", fix="`kernel-lsp model serve MODEL --adopt URL`.")
    variable = settings.model.key_variable
    return launch.adopt(url, settings, model=model, key=os.environ.get(variable) if variable else None)


def _adapters(said: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in said:
        name, equals, folder = text.partition("=")
        if not (name and equals and folder):
            raise ConfigurationError(f"`--adapter {text}` names no adapter.", fix="Write it as NAME=FOLDER.")
        found[name] = Path(folder).expanduser().absolute()
    return found


def _wish(dtype: str | None, context: int | None, gpus: int | None, ray: int | None) -> Wish:
    if dtype not in (None, "bf16", "fp8", "4bit"):
        raise ConfigurationError(f"`--dtype {dtype}` is unknown.", fix="There are bf16, fp8 and 4bit.")
    return Wish(dtype, context, gpus, ray)


def _shown_until_ready(folder: Path) -> ModelServer:
    columns = (TextColumn("  {task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) if sys.stderr.isatty() else nullcontext() as bar:
        task = bar.add_task("starting vLLM", total=1.0) if bar else None

        def show(now: Loading) -> None:
            if bar is not None and task is not None:
                bar.update(task, description=now.doing, completed=now.share)

        return launch.wait_until_ready(folder, show)
