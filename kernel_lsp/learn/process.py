"""Run what trains in a process of its own, hear its events, and say what is missing for it: packages or memory."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.host_memory import host_memory
from kernel_lsp.device.nvml import Gpu, free_bytes
from kernel_lsp.errors import CannotJudgeError, ConfigurationError, KernelLspError, RunnerError
from kernel_lsp.learn.base_model import BaseModel
from kernel_lsp.learn.memory import GIB, Training, need, what_fits
from kernel_lsp.learn.training import EVENTS, GrpoJob, RoundsJob, SftJob, TrainingEvent
from kernel_lsp.model.errors import DoesNotFitError

OnEvent = Callable[[TrainingEvent], None]

_PACKAGES = ("torch", "transformers", "datasets", "accelerate", "peft", "trl")
_LOOK = f"""import importlib.util, sys
missing = [name for name in {_PACKAGES} if importlib.util.find_spec(name) is None]
sys.exit(", ".join(missing) or None)"""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_LOG_LINES = 5  # of a process that failed, shown to the user
_END_SECONDS = 10.0


def trainer_python(settings: Settings) -> str:
    """Return the Python that trains: that of `learn.python`, or this program's own."""
    return str(settings.learn.python or sys.executable)


def require_name(adapter: str) -> None:
    """Check that an adapter can have this name.

    Raises:
        ConfigurationError: it cannot be that of a folder.
    """
    if not _NAME.fullmatch(adapter):
        fix = "Use letters, digits, points, hyphens and underscores."
        raise ConfigurationError(f"`{adapter}` cannot be the name of an adapter", fix=fix)


def base_folder(weights: Path | None, settings: Settings) -> Path:
    """Return the folder of the base model: the one named, or that of `model.weights`.

    Raises:
        ConfigurationError: neither is named.
    """
    folder = weights or settings.model.weights
    if folder is None:
        fix = "Name their folder with `--weights`, or with the setting `model.weights`."
        raise ConfigurationError("No base model is named", fix=fix)
    return folder.expanduser().absolute()


def require_same(folder: Path, job: SftJob | GrpoJob | RoundsJob, *, moved: Collection[str]) -> None:
    """Check that an adapter's folder holds nothing, or this job.

    Raises:
        ConfigurationError: it holds another one. Fields in `moved` may differ.
    """
    try:
        known = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        known = {}
    wanted = json.loads(job.model_dump_json())
    changed = [name for name in wanted if name not in moved and wanted[name] != known.get(name)]
    if changed:
        said = ", ".join(f"{name} was {known.get(name)}" for name in changed)
        fix = "Train under another name with --adapter, or start again with --anew."
        raise ConfigurationError(f"`{job.adapter}` was trained otherwise: {said}", folder / "job.json", fix=fix)


def free_on(gpu: Gpu | None) -> int:
    """Return the bytes of memory that a process can have on a GPU, or beside the others in this machine."""
    return free_bytes(gpu) if gpu is not None else host_memory()[1]


def require_room(base: BaseModel, wanted: Training, free: float, place: str) -> None:
    """Check that a training fits in so many bytes.

    Raises:
        DoesNotFitError: it does not; the fix says what would.
    """
    needed = need(base, wanted)
    if needed.total <= free:
        return
    other = what_fits(base, wanted, free)
    message = (
        f"Training does not fit {place}: it takes about {needed.total / GIB:.1f} GiB ({needed}), "
        f"and {free / GIB:.1f} GiB are free"
    )
    if other is None:
        fix = "Nothing shorter fits either: take a smaller model or a larger GPU, or stop what else runs there."
    else:
        rank = f" and `learn.rank` {other.rank}" if other.rank != wanted.rank else ""
        fix = f"`learn.length` {other.length}{rank} would fit ({need(base, other).total / GIB:.1f} GiB)."
    raise DoesNotFitError(message, fix=fix)


async def require_packages(python: str) -> None:
    """Check that a Python has what trains.

    Raises:
        CannotJudgeError: it has not, or cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            python, "-c", _LOOK, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise CannotJudgeError(f"{python} cannot be started: {error.strerror}", fix="Set `learn.python`.") from None
    _, said = await process.communicate()
    if process.returncode != 0:
        missing = said.decode(errors="replace").strip().rpartition("\n")[2]
        fix = "`pip install 'kernel-lsp[train]'`, or name a Python that has it with `learn.python`."
        raise CannotJudgeError(f"{python} cannot train: it lacks {missing}", fix=fix)


async def run_trainer(python: str, module: str, folder: Path, *more: str, gpu: str | None, on_event: OnEvent) -> None:
    """Run a trainer to its end; a cancelled task ends the process.

    Args:
        python: that has what trains.
        module: of `kernel_lsp.learn.trainer`.
        folder: of the job, which takes its log and what it trains.
        more: further arguments.
        gpu: UUID of the GPU; None for the processor.
        on_event: called with each report.

    Raises:
        ConfigurationError: the trainer says what is wrong with the job.
        RunnerError: it ended before it was done; what it had trained is kept.
    """
    last: TrainingEvent | None = None
    async with _process((python, "-m", module, str(folder), *more), folder, gpu) as (process, events):
        while line := await events.readline():
            last = TrainingEvent.model_validate_json(line)
            on_event(last)
        code = await process.wait()
    if code != 0 or last is None or last.kind != "done":
        raise _failed(folder, last, code)


@dataclass(frozen=True, slots=True)
class Trainer:
    """A process that takes steps when it is told to. Make it with `open_trainer`."""

    folder: Path
    process: asyncio.subprocess.Process
    events: asyncio.StreamReader

    async def take(self, step: int, on_event: OnEvent) -> None:
        """Have it take a step; `on_event` is called with each report.

        Raises:
            ConfigurationError: the trainer says what is wrong with the job.
            RunnerError: it ended before it was done.
        """
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended: said below
            self.process.stdin.write(f"{step}\n".encode())
            await self.process.stdin.drain()
        last: TrainingEvent | None = None
        while (last is None or last.kind != "done") and (line := await self.events.readline()):
            last = TrainingEvent.model_validate_json(line)
            on_event(last)
        if last is None or last.kind != "done":
            raise _failed(self.folder, last, await self.process.wait())


@asynccontextmanager
async def open_trainer(python: str, module: str, folder: Path, gpu: str | None) -> AsyncGenerator[Trainer]:
    """Start a process that takes steps; it ends with the block.

    Args:
        python: that has what trains.
        module: of `kernel_lsp.learn.trainer`.
        folder: of the job, which takes its log and what it trains.
        gpu: UUID of the GPU; None for the processor.
    """
    async with _process((python, "-m", module, str(folder)), folder, gpu, told=True) as (process, events):
        yield Trainer(folder, process, events)


@asynccontextmanager
async def _process(
    call: Sequence[str], folder: Path, gpu: str | None, *, told: bool = False
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """Start the process that trains; yields it and its events, and ends it if it still runs.

    With `told` it can be told something.
    """
    reading, writing = os.pipe()
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = os.environ | offline | {EVENTS: str(writing), "CUDA_VISIBLE_DEVICES": gpu or "", "PYTHONPATH": path}
    try:
        with (folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *call,
                stdin=asyncio.subprocess.PIPE if told else asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=(writing,),
                start_new_session=True,
            )
    finally:
        os.close(writing)
    events = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(events), os.fdopen(reading, "rb")
    )
    try:
        yield process, events
    finally:
        transport.close()
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _failed(folder: Path, last: TrainingEvent | None, code: int) -> KernelLspError:
    """Return the reason why a trainer is not done: its own words, or how it ended."""
    if last is not None and last.kind == "failed":
        return ConfigurationError(last.message, folder / "job.json", fix=last.fix)
    log = folder / "log"
    how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    said = " / ".join(line.strip() for line in log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
    said = f": {said}" if said else ""
    fix = "The same command goes on from the last checkpoint; if it was killed for memory, lower `learn.length`."
    return RunnerError(f"The process that trains {how}{said}", log, fix=fix)
