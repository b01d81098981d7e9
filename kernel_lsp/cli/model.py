"""`kernel-lsp model`: see which models are served here, agree to one elsewhere.

Serving one is a distribution of its own, `server/`, which adds its commands by the entry point `kernel_lsp.commands`.
"""

from functools import cached_property
from importlib.metadata import entry_points
from typing import Annotated

import typer
from typer.core import TyperGroup

from kernel_lsp.cli.console import out
from kernel_lsp.cli.options import Json
from kernel_lsp.errors import ConfigurationError

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


app = typer.Typer(cls=_WithServed, add_completion=False, no_args_is_help=True)


@app.callback()
def model() -> None:
    """Serve a language model on this machine, or agree to use one elsewhere."""


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


def _say_it_is_missing() -> None:
    raise ConfigurationError(
        "Serving models on this machine is a package of its own, kernel-model-server, which is not installed.",
        cure="In a clone of Kernel LSP: `pip install -e 'server[vllm]'`. For one elsewhere, set `model.endpoint`.",
    )
