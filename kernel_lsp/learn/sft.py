"""Fine-tune an adapter in a process of its own: plan it, refuse what does not fit, run it, take it up again.

An adapter's training lies in `paths.data/adapters/NAME`: `job.json`, the log, checkpoints, and at its end `adapter/`,
which a server loads. A call for the same job goes on where the last one ended; one for another job is refused.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.device.nvml import free_bytes
from kernel_lsp.errors import CannotJudgeError, ConfigurationError, RunnerError
from kernel_lsp.learn.base_model import BaseModel, read_base_model
from kernel_lsp.learn.dataset import CARD, HELD_OUT, TRAIN
from kernel_lsp.learn.memory import GIB, Training, need, what_fits
from kernel_lsp.learn.training import EVENTS, SftJob, TrainingEvent
from kernel_lsp.model.errors import DoesNotFitError

OnEvent = Callable[[TrainingEvent], None]

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_TRAINER = "kernel_lsp.learn.trainer.sft"
_PACKAGES = ("torch", "transformers", "datasets", "accelerate", "peft", "trl")
_LOOK = f"""import importlib.util, sys
missing = [name for name in {_PACKAGES} if importlib.util.find_spec(name) is None]
sys.exit(", ".join(missing) or None)"""
_LOG_LINES = 5  # of a process that failed, shown to the user
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """A training that can be run.

    Attributes:
        job: what is trained.
        folder: of the adapter.
        place: where it runs, in words.
        free: bytes of memory there.
        needed: bytes that it is estimated to take.
    """

    job: SftJob
    folder: Path
    place: str
    free: int
    needed: float

    @property
    def is_done(self) -> bool:
        """True if the adapter is there."""
        return (self.folder / "adapter").is_dir()


def plan_sft(dataset: Path, adapter: str, settings: Settings, weights: Path | None = None) -> PlannedTraining:
    """Return the training of an adapter on a dataset.

    Args:
        dataset: folder that `kernel-lsp model collect` wrote.
        adapter: a name for it.
        settings: say how it is trained.
        weights: folder of the base model, instead of `model.weights`.

    Raises:
        ConfigurationError: the dataset, the name or the length cannot be used, or another training has the name.
        NoWeightsError: there is no base model.
        DoesNotFitError: the memory would not suffice; the message says what would fit.
    """
    if not _NAME.fullmatch(adapter):
        cure = "Use letters, digits, points, hyphens and underscores."
        raise ConfigurationError(f"`{adapter}` is no name for an adapter", cure=cure)
    learn = settings.learn
    base = read_base_model((weights or settings.model.weights or _no_weights()).expanduser().absolute())
    if base.positions is not None and learn.length > base.positions:
        message = f"`learn.length` is {learn.length:,} tokens, and the model reads {base.positions:,} at most"
        raise ConfigurationError(message, base.folder, cure="Lower `learn.length`.")
    gpu = choose_gpu(settings.gpu)
    job = SftJob(
        adapter=adapter,
        train=_file(dataset, TRAIN),
        held_out=_file(dataset, HELD_OUT),
        dataset=_digest(dataset),
        weights=base.folder,
        base=base.identity,
        rank=learn.rank,
        rate=learn.rate,
        epochs=learn.epochs,
        batch=learn.batch,
        length=learn.length,
        checkpoint=learn.checkpoint,
        seed=0,
        gpu=gpu.uuid if gpu else None,
    )
    folder = settings.paths.data.expanduser().absolute() / "adapters" / adapter
    _require_same(folder, job)
    place = gpu.name if gpu else "the processor"
    planned = PlannedTraining(job, folder, place, free_bytes(gpu) if gpu else _free_here(), _needed(base, job))
    if not planned.is_done:
        _require_room(base, planned)
    return planned


async def run_sft(planned: PlannedTraining, settings: Settings, on_event: OnEvent) -> Path:
    """Train, or go on with it, and return the folder of the adapter; a cancelled task ends the process.

    Raises:
        CannotJudgeError: the packages that train are missing.
        ConfigurationError: the dataset and the model do not fit each other, or the folder cannot be written.
        RunnerError: the process ended before it was done; what it had trained is kept.
    """
    if planned.is_done:
        return planned.folder / "adapter"
    python = str(settings.learn.python or sys.executable)
    await _require_packages(python)
    try:
        planned.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (planned.folder / "job.json").write_text(planned.job.model_dump_json(indent=2), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The training cannot be kept: {error.strerror}", planned.folder) from None
    failed: TrainingEvent | None = None
    async with _process(planned, python) as (process, events):
        while line := await events.readline():
            event = TrainingEvent.model_validate_json(line)
            failed = event if event.kind == "failed" else failed
            on_event(event)
        code = await process.wait()
    if failed is not None:
        raise ConfigurationError(failed.message, planned.folder / "job.json", cure=failed.cure)
    if code != 0 or not planned.is_done:
        raise _ended(planned, code)
    for checkpoint in planned.folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    return planned.folder / "adapter"


def forget(adapter: str, settings: Settings) -> None:
    """Remove an adapter with its training."""
    shutil.rmtree(settings.paths.data.expanduser() / "adapters" / adapter, ignore_errors=True)


def _no_weights() -> Path:
    cure = "Name their folder with `--weights`, or with the setting `model.weights`."
    raise ConfigurationError("No base model is named", cure=cure)


def _file(dataset: Path, name: str) -> Path:
    path = (dataset / name).absolute()
    if not (dataset / CARD).is_file() or not path.is_file():
        cure = "`kernel-lsp model collect` makes one; if it was killed, run it again."
        raise ConfigurationError("The folder holds no whole dataset", dataset, cure=cure)
    return path


def _digest(dataset: Path) -> str:
    digest = hashlib.sha256()
    for name in (TRAIN, HELD_OUT):
        digest.update(hashlib.sha256(_file(dataset, name).read_bytes()).digest())
    return digest.hexdigest()


def _require_same(folder: Path, job: SftJob) -> None:
    """Check that the folder holds nothing, or this job: wherever the dataset and the weights lie now."""
    try:
        known = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        known = {}
    wanted = json.loads(job.model_dump_json())
    moved = {"train", "held_out", "weights", "checkpoint"}
    changed = [name for name in wanted if name not in moved and wanted[name] != known.get(name)]
    if changed:
        said = ", ".join(f"{name} was {known.get(name)}" for name in changed)
        cure = "Train under another name with --adapter, or begin anew with --anew."
        raise ConfigurationError(f"`{job.adapter}` was trained otherwise: {said}", folder / "job.json", cure=cure)


def _free_here() -> int:
    """Return the bytes of memory that the system can give to a process."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _training(job: SftJob) -> Training:
    return Training(job.rank, job.length, gpu=job.gpu is not None)


def _needed(base: BaseModel, job: SftJob) -> float:
    return need(base, _training(job)).total


def _require_room(base: BaseModel, planned: PlannedTraining) -> None:
    if planned.needed <= planned.free:
        return
    wanted = _training(planned.job)
    other = what_fits(base, wanted, planned.free)
    message = (
        f"Training does not fit {planned.place}: it takes about {planned.needed / GIB:.1f} GiB "
        f"({need(base, wanted)}), and {planned.free / GIB:.1f} GiB are free"
    )
    if other is None:
        cure = "Nothing shorter fits either: take a smaller model or a larger GPU, or stop what else runs there."
    else:
        rank = f" and `learn.rank` {other.rank}" if other.rank != wanted.rank else ""
        cure = f"`learn.length` {other.length}{rank} would fit ({need(base, other).total / GIB:.1f} GiB)."
    raise DoesNotFitError(message, cure=cure)


async def _require_packages(python: str) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            python, "-c", _LOOK, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise CannotJudgeError(f"{python} cannot be started: {error.strerror}", cure="Set `learn.python`.") from None
    _, said = await process.communicate()
    if process.returncode != 0:
        missing = said.decode(errors="replace").strip().rpartition("\n")[2]
        cure = "`pip install 'kernel-lsp[train]'`, or name a Python that has it with `learn.python`."
        raise CannotJudgeError(f"{python} cannot train: it lacks {missing}", cure=cure)


@asynccontextmanager
async def _process(
    planned: PlannedTraining, python: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """Start the process that trains; yields it and its events, and ends it if it still runs."""
    reading, writing = os.pipe()
    gpu = planned.job.gpu or ""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = os.environ | offline | {EVENTS: str(writing), "CUDA_VISIBLE_DEVICES": gpu, "PYTHONPATH": path}
    try:
        with (planned.folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(python, "-m", _TRAINER, str(planned.folder)),
                stdin=asyncio.subprocess.DEVNULL,
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


def _ended(planned: PlannedTraining, code: int) -> RunnerError:
    log = planned.folder / "log"
    how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    last = " / ".join(line.strip() for line in log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
    said = f": {last}" if last else ""
    cure = "The same command goes on from the last checkpoint; if it was killed for memory, lower `learn.length`."
    return RunnerError(f"The process that trains {how}{said}", log, cure=cure)
