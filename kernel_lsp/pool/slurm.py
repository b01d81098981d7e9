"""A Ray cluster of SLURM's tasks: its head here, which has no lanes, and a task with a GPU for each lane."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernel_lsp.config.runtime_folder import private_folder
from kernel_lsp.errors import CannotJudgeError, ConfigurationError

_RAY = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block")
_HEAD_SECONDS = 60.0
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.2


@contextmanager
def slurm_tasks(lanes: int) -> Generator[tuple[str, Callable[[], None]]]:
    """Start a head and ask SLURM for so many tasks that join it; all end with the block.

    The tasks inherit the environment, and the cluster's token with it.

    Yields:
        HOST:PORT of the head, and a function that raises CannotJudgeError if the tasks have ended.

    Raises:
        ConfigurationError: there is no `srun` here.
        CannotJudgeError: the head does not start.
    """
    if shutil.which("srun") is None:
        fix = "Call it where jobs are submitted, or name a cluster that stands: --pool ray://HOST:PORT."
        raise ConfigurationError("There is no `srun` here, so SLURM cannot be asked for lanes.", fix=fix)
    with (
        tempfile.TemporaryDirectory(prefix="", dir=private_folder("ray"), ignore_cleanup_errors=True) as folder,
        socket.create_server(("", 0)) as free,
    ):
        host, port = _own_address(), free.getsockname()[1]
        free.close()
        there = f"{host}:{port}"
        listen = (f"--node-ip-address={host}", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")
        head = (*_RAY, "--head", *listen, "--num-cpus=0", "--num-gpus=0")
        join = ("srun", f"--ntasks={lanes}", "--gpus-per-task=1", "--export=ALL", *_RAY, f"--address={there}")
        with _running(head, Path(folder) / "head.log") as require_head:
            until = time.monotonic() + _HEAD_SECONDS
            while not _answers(host, port):
                require_head()
                if time.monotonic() > until:
                    raise CannotJudgeError(f"Ray's head does not answer at {there}.")
                time.sleep(_LOOK_SECONDS)
            with _running(join, Path(folder) / "srun.log") as require_tasks:
                yield there, require_tasks


@contextmanager
def _running(command: Sequence[str], log: Path) -> Generator[Callable[[], None]]:
    """Run a program; yields a function that raises CannotJudgeError if it has ended, with the end of what it said."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=log.parent, start_new_session=True
        )

    def require() -> None:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise CannotJudgeError(f"`{Path(command[0]).name}` has ended, so there are no lanes: {lines[-1]}")

    try:
        yield require
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(_END_SECONDS)


def _own_address() -> str:
    """Return the address of this machine that others reach it by."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, contextlib.suppress(OSError):
        asking.connect(("192.0.2.1", 9))  # an address of documentation, to which nothing is sent: RFC 5737
        return str(asking.getsockname()[0])
    return socket.gethostbyname(socket.gethostname())


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
        return True
    return False
