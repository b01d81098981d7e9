"""The command `kernel-lsp`: finds the subcommand, and turns every outcome into an exit code.

Exit codes: 0 success; 1 findings; 2 usage, configuration or input that cannot be used; 3 cannot be judged here; 4 of
`capture --with`, the variant differs or fails; 130 interrupted. Subcommands are imported when they are called, so that
`--version` and completion answer at once.
"""

import sys
import warnings
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from kernel_lsp import __version__
from kernel_lsp.errors import CannotJudgeError, KernelLspError, RunnerError

if TYPE_CHECKING:
    from rich.console import Console

FINDINGS = 1
UNUSABLE = 2
CANNOT_JUDGE = 3
INTERRUPTED = 130

COMMANDS = (
    *("check", "watch", "judge", "refine", "draft", "facts", "profile", "explain", "report", "serve", "model"),
    *("capture", "bench", "trust", "untrust", "doctor"),
)
"""Each is a module beside this one with an `app` of one command or of several subcommands."""

# Without options: to import what reads them takes twice as long as all else before an editor has its first answer.
_AS_EDITORS_SERVE = (["serve"], ["serve", "--stdio"])


class _Commands(TyperGroup):
    """Commands by name; the module of a command is imported when it is called."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str):  # pyright: ignore[reportIncompatibleMethodOverride]
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(f"kernel_lsp.cli.{cmd_name}").app)
        command.name = cmd_name  # a group has no name, and help lists by it
        return command


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kernel-lsp {__version__}")
        raise typer.Exit


@app.callback()
def kernel_lsp(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Faster CUDA and Triton kernels, each compiled, verified and benchmarked on your own GPU."""


def main() -> None:
    """The console script."""
    if isinstance(sys.stdout, TextIOWrapper):  # escape characters that its encoding lacks, as on standard error
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if sys.argv[1:] in _AS_EDITORS_SERVE:
            sys.exit(_serve())
        app()
    except KernelLspError as error:
        from kernel_lsp.report.problem import problem_view

        _complain().print(problem_view(error))
        sys.exit(CANNOT_JUDGE if isinstance(error, CannotJudgeError | RunnerError) else UNUSABLE)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # Typer ends so on Ctrl-C, and `refine` after it has shown its result
            _keep_silent()
            _complain().print("Stopped.")
        raise


def _keep_silent() -> None:
    """Print nothing of what an interrupt left half made: Python would tell of a loop or of work that nobody began."""
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None


def _serve() -> int:
    from kernel_lsp.lsp.serving import serve_stdio

    return serve_stdio({})


def _complain() -> "Console":
    from kernel_lsp.cli.console import err

    return err
