"""The cell magic `%%kernel_lsp` of Jupyter and IPython: a cell is checked, or its facts shown, as a file would be.

A cell has the same lines as in the notebook, so findings name the lines that the notebook numbers. It is checked in a
process of its own, by the command line, and then runs as any cell does, unless something in it is wrong.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from kernel_lsp.source.python import python_ast_if_any

COMMANDS = ("check", "facts")
_RUN = "from kernel_lsp.cli.main import main; main()"


class Shell(Protocol):
    """The part of IPython's shell that a magic needs."""

    def register_magic_function(self, func: object, magic_kind: str, magic_name: str) -> None:
        """Make a function a magic of this kind and name."""

    def run_cell(self, raw_cell: str) -> object:
        """Run a cell as the user would."""


def load_ipython_extension(shell: Shell) -> None:
    """Add the magic to a shell; IPython calls this for `%load_ext kernel_lsp.cli.notebook`."""
    magic = CellMagic(shell)
    shell.register_magic_function(magic.run, magic_kind="cell", magic_name="kernel_lsp")


class CellMagic:
    """`%%kernel_lsp check [OPTIONS]` or `%%kernel_lsp facts [OPTIONS]`, with the options of the command line."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def run(self, line: str, cell: str) -> None:
        """Check a cell and run it; a cell of CUDA text is only checked, since Python cannot run it."""
        command, *options = shlex.split(line) or ["check"]
        if command not in COMMANDS:
            print(f"%%kernel_lsp knows {' and '.join(COMMANDS)}, not {command}: write %%kernel_lsp check.")
            return
        is_cuda = "__global__" in cell and python_ast_if_any(cell) is None
        status = _told(command, options, "cell.cu" if is_cuda else "cell.py", cell)
        if status == 0 and not is_cuda:
            self._shell.run_cell(cell)


def _told(command: str, options: list[str], name: str, cell: str) -> int:
    """Print what the command line says of a cell, and return its exit status."""
    with tempfile.TemporaryDirectory(prefix="kernel-lsp-cell-") as folder:
        Path(folder, name).write_text(f"\n{cell}", encoding="utf-8")  # the magic is the notebook's first line
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", _RUN, command, name, *options],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    print(done.stdout, end="")
    return done.returncode
