"""Options shared by several commands. Imports nothing slow: a language server starts with it."""

from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.errors import ConfigurationError


def _named_file(path: Path | None) -> Path | None:
    """Return the path that --workload names.

    Raises:
        ConfigurationError: there is no file at it.
    """
    if path is not None and not path.is_file():
        fix = "Name a Python file with CASES, inputs, reference and launch; `kernel-lsp draft FILE` makes a first one."
        raise ConfigurationError("--workload names no file.", path, fix=fix)
    return path


Workload = Annotated[
    Path | None, typer.Option(callback=_named_file, help="The workload, where it is not found by its name.")
]

Gpu = Annotated[
    str | None, typer.Option(metavar="GPU", help="GPU to use: its index, UUID or name; by default the first.")
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

Pool = Annotated[
    str | None,
    typer.Option(metavar="local|ray|ray://HOST:PORT|slurm:N", help="Where to judge; by default on this machine."),
]

Lanes = Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs to judge on, at most; by default one.")]
