"""`kernel-lsp serve`: runs the language server for an editor."""

from typing import Annotated

import typer

from kernel_lsp.cli.options import Gpu
from kernel_lsp.lsp.serving import serve_socket, serve_stdio

app = typer.Typer(add_completion=False)


@app.command()
def serve(
    socket: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Wait for one client on this port of 127.0.0.1; 0 picks one.")
    ] = None,
    gpu: Gpu = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Talk over standard input and output, as is the rule.")] = True,
) -> None:
    """Run the language server; an editor starts it."""

    def say(port: int) -> None:
        typer.echo(f"listening on 127.0.0.1:{port}", err=True)

    commanded = {} if gpu is None else {"gpu": gpu}
    raise typer.Exit(serve_stdio(commanded) if socket is None else serve_socket(socket, say, commanded))
