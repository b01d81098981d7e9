"""`kernel-lsp capture`: runs a program, and makes workloads from its kernel launches."""

from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.capture.adopt import adopted_workload
from kernel_lsp.capture.run import capture_program, program_name
from kernel_lsp.cli.console import err, out
from kernel_lsp.errors import SourceError
from kernel_lsp.report.capture import capture_view, captured_view
from kernel_lsp.source.files import read_source, write_new
from kernel_lsp.workload.capture import FOLDER, SUFFIX, Capture, read_capture

_ACTIONS = ("list", "show", "adopt", "rm")

app = typer.Typer(add_completion=False)


@app.command(context_settings={"allow_interspersed_args": False})
def capture(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="The program; or `list`, or `show`, `adopt`, `rm` FILE."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the captures.")] = FOLDER,
    kernel: Annotated[
        list[str] | None, typer.Option(help="Part of a kernel's name; of all others only launches are counted.")
    ] = None,
    rank: Annotated[int, typer.Option(help="Of several ranks, as torchrun starts them, the one to record.")] = 0,
    emulate: Annotated[bool, typer.Option("--emulate", help="Let the program see the emulator as its GPU.")] = False,
) -> None:
    """Run a program and keep what its Triton kernels were given as workloads. Ends with the program's exit code.

    `capture list` shows what there is, `capture show FILE` the cases of one, `capture adopt FILE` writes one out as the
    draft of a workload file to own, and `capture rm FILE` deletes it.
    """
    if command[0] in _ACTIONS:
        _act(command[0], [Path(path) for path in command[1:]], output)
        return
    captured = capture_program(command, output, kernels=kernel or (), emulate=emulate, rank=rank)
    err.print(captured_view(captured, program_name(command)))
    raise typer.Exit(captured.code if captured.code >= 0 else 128 - captured.code)


def _act(action: str, paths: list[Path], folder: Path) -> None:
    if action == "list":
        paths = sorted(folder.glob(f"*{SUFFIX}"))
        if not paths:
            raise SourceError("there are no captures", folder, fix="`kernel-lsp capture -- COMMAND` makes some.")
    elif not paths:
        raise SourceError(
            f"`capture {action}` needs the file of a capture", fix="`kernel-lsp capture list` names them."
        )
    for path in paths:
        text = read_source(path).text
        found = read_capture(text, path)
        if action == "adopt":
            _adopt(found)
        elif action == "rm":
            path.unlink()
        else:
            out.print(capture_view(found, path))


def _adopt(found: Capture) -> None:
    file = adopted_workload(found, Path(found.kernel).parent)
    write_new(file.path, file.text)
    err.print(f"Written to {file.path}. Write its `reference`, then remove its first line.")
