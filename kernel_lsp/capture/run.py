"""Starts a user's program with the recorder in it, and stores the record as captures."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.capture.program_record import ProgramRecord, read_seen
from kernel_lsp.errors import SourceError
from kernel_lsp.workload.capture import Capture, capture_text

_INJECT = Path(__file__).parent / "inject"
_EMULATED = "kernel_lsp.runner.workers.emulated_program"
_IGNORE = "*\n"


@dataclass(frozen=True, slots=True)
class Captured:
    """A program that was run and recorded.

    Attributes:
        code: its exit code; minus the signal's number where one ended it.
        seen: the record.
        written: the files of its captures, in order.
    """

    code: int
    seen: ProgramRecord
    written: tuple[Path, ...]


def capture_program(
    command: Sequence[str], folder: Path, *, kernels: Sequence[str] = (), emulate: bool = False, rank: int = 0
) -> Captured:
    """Run a program to its end, in our terminal, and write a capture for each recorded function.

    Args:
        command: the program and its arguments.
        folder: receives the captures; made if missing.
        kernels: parts of names; for other kernels only launches are counted.
        rank: of the processes that a launcher such as torchrun starts, the one that is recorded.
        emulate: run a Python program on the emulator instead of a GPU.

    Raises:
        SourceError: the program cannot be started, or the folder cannot be written to.
    """
    _prepare(folder)
    with tempfile.TemporaryDirectory(prefix="kernel-lsp-capture-") as scratch:
        environment = _environment(os.environ, Path(scratch), kernels, rank)
        code = _run(_emulated(command) if emulate else command, environment)
        seen = read_seen(Path(scratch))
    return Captured(code, seen, tuple(_write(capture, folder) for capture in seen.captures))


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == "captures" and folder.parent.name == ".kernel-lsp":
            (folder / ".gitignore").write_text(_IGNORE, encoding="utf-8")
    except OSError as error:
        cure = "Name another folder with -o."
        raise SourceError(f"captures cannot be written here: {error.strerror}", folder, cure=cure) from None


def _write(capture: Capture, folder: Path) -> Path:
    path = folder / capture.file_name
    partial = path.with_suffix(".partial")
    partial.write_text(capture_text(capture), encoding="utf-8")
    partial.replace(path)  # a reader finds the old one or the new one
    return path


def _environment(own: Mapping[str, str], scratch: Path, kernels: Sequence[str], rank: int) -> dict[str, str]:
    """Return the program's environment: the recorder's folder comes first in Python's search path."""
    before = own.get("PYTHONPATH", "")
    return {
        **own,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_INJECT), before))),
        "KERNEL_LSP_CAPTURE": str(scratch),
        "KERNEL_LSP_CAPTURE_RANK": str(rank),
        "KERNEL_LSP_CAPTURE_KERNELS": "\n".join(kernels),
    }


def _emulated(command: Sequence[str]) -> list[str]:
    """Return a command that runs a Python file on the emulator, with this Python.

    Raises:
        SourceError: it is another kind of command.
    """
    rest = list(command)
    if rest and Path(rest[0]).name.startswith("python"):
        del rest[0]
    if not rest or not rest[0].endswith(".py"):
        raise SourceError("--emulate runs a Python file only", cure="Write `-- python FILE.py ARGUMENTS`.")
    return [sys.executable, "-m", _EMULATED, *rest]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    program = shutil.which(command[0])
    if program is None:
        raise SourceError(f"there is no program `{command[0]}`", cure="Write it as in a shell, after `--`.")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program: what it did until then counts
    try:
        process = subprocess.Popen(
            [program, *command[1:]], env=dict(environment), preexec_fn=lambda: _give_back(before)
        )
        return process.wait()
    except OSError as error:
        cure = "Write it as in a shell, after `--`."
        raise SourceError(f"the program cannot be started: {error.strerror}", Path(program), cure=cure) from None
    finally:
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGINT, before)


def _give_back(before: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN if before is signal.SIG_IGN else signal.SIG_DFL)
