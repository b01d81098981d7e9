"""Run a program of the user's and keep what its kernels were given; the result has the files of the `captures`."""

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from kernel_lsp.capture.run import program_name
from kernel_lsp.check.baseline import find_root
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.errors import ConfigurationError, RunnerError
from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.report.units import count_text
from kernel_lsp.workload.capture import FOLDER, SUFFIX

_PACKAGE = str(Path(__file__).parents[3])
_STANDARD_ERROR = 2  # the log: standard output is for the server
_CAPTURE = ("-P", "-c", "from kernel_lsp.cli.main import main; main()", "capture")


async def capture(job: JobContext) -> dict[str, Any]:
    """Run the program that the label names, in the folder of the project; without a GPU it sees the emulator.

    Raises:
        ConfigurationError: the label is not a command.
        RunnerError: the program cannot be started, or nothing of it was captured and it failed.
    """
    try:
        words = shlex.split(job.label or "")
    except ValueError as error:
        raise ConfigurationError(f"This is not a command: {error}.", fix="Close its quotation marks.") from None
    root = find_root(job.path)
    folder = root / FOLDER
    before = _captures(folder)
    emulate = ["--emulate"] if choose_gpu(job.settings.gpu) is None else []
    job.doing(f"{program_name(words)} runs{' on the emulator' if emulate else ''}")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *_CAPTURE,
        *("-o", str(folder), *emulate, "--", *words),
        cwd=root,
        env=_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=_STANDARD_ERROR,
    )
    code = await process.wait()
    made = sorted(path for path, written in _captures(folder).items() if before.get(path) != written)
    ended = f"it ended with exit code {code}" if code else ""
    if code and not made:
        raise RunnerError(f"{ended}, and nothing was captured; the log has what it said")
    functions = ", ".join(path.name.split(".")[1] for path in made)
    found = f"{count_text(len(made), 'workload')}: {functions}" if made else "no kernel was launched"
    reason = "; ".join(filter(None, (found, ended)))
    return {"reason": reason, "verdict": None, "captures": [str(path) for path in made]}


def _captures(folder: Path) -> dict[Path, int]:
    """Return the captures in a folder, each with when it was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob(f"*{SUFFIX}")}


def _environment() -> dict[str, str]:
    """Return the environment as the user has it: without the folder that this process imports ours from."""
    first, _, others = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    return {**os.environ, "PYTHONPATH": others if first == _PACKAGE else os.environ.get("PYTHONPATH", "")}
