"""Fine-tune an adapter in a process of its own: plan it, refuse what does not fit, run it, take it up again.

An adapter's training lies in `paths.data/adapters/NAME`: `job.json`, the log, checkpoints, and at its end `adapter/`,
which a server loads. A call for the same job goes on where the last one ended; one for another job is refused.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.learn.base_model import BaseModel, read_base_model
from kernel_lsp.learn.dataset import CARD, HELD_OUT, TRAIN
from kernel_lsp.learn.memory import Training, need
from kernel_lsp.learn.process import (
    OnEvent,
    base_folder,
    free_on,
    require_name,
    require_packages,
    require_room,
    require_same,
    run_trainer,
    trainer_python,
)
from kernel_lsp.learn.training import SftJob
from kernel_lsp.model.adapters import AdapterCard, adapter_folder, content_of, write_card

_TRAINER = "kernel_lsp.learn.trainer.sft"


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


def plan_sft(
    dataset: Path, adapter: str, settings: Settings, weights: Path | None = None, folder: Path | None = None
) -> PlannedTraining:
    """Return the training of an adapter on a dataset.

    Args:
        dataset: folder that `kernel-lsp model collect` wrote.
        adapter: a name for it.
        settings: say how it is trained.
        weights: folder of the base model, instead of `model.weights`.
        folder: for the training, instead of the one of adapters of this name.

    Raises:
        ConfigurationError: the dataset, the name or the length cannot be used, or another training has the name.
        NoWeightsError: there is no base model.
        DoesNotFitError: the memory would not suffice; the message says what would fit.
    """
    require_name(adapter)
    learn = settings.learn
    base = read_base_model(base_folder(weights, settings))
    require_length(base, learn.length)
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
    folder = folder or adapter_folder(settings.paths.data, adapter)
    require_same(folder, job, moved=("train", "held_out", "weights", "checkpoint"))
    place = gpu.name if gpu else "the processor"
    planned = PlannedTraining(job, folder, place, free_on(gpu), need(base, _training(job)).total)
    if not planned.is_done:
        require_room(base, _training(job), planned.free, place)
    return planned


def require_length(base: BaseModel, length: int) -> None:
    """Check that a model reads conversations of so many tokens.

    Raises:
        ConfigurationError: it does not.
    """
    if base.positions is not None and length > base.positions:
        message = f"`learn.length` is {length:,} tokens, and the model reads {base.positions:,} at most"
        raise ConfigurationError(message, base.folder, fix="Lower `learn.length`.")


async def run_sft(planned: PlannedTraining, settings: Settings, on_event: OnEvent) -> Path:
    """Train, or go on with it, and return the folder of the adapter; a cancelled task ends the process.

    Raises:
        CannotJudgeError: the packages that train are missing.
        ConfigurationError: the dataset and the model do not fit each other, or the folder cannot be written.
        RunnerError: the process ended before it was done; what it had trained is kept.
    """
    if not planned.is_done:
        python = trainer_python(settings)
        await require_packages(python)
        try:
            planned.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (planned.folder / "job.json").write_text(planned.job.model_dump_json(indent=2), encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"The training cannot be kept: {error.strerror}", planned.folder) from None
        await run_trainer(python, _TRAINER, planned.folder, gpu=planned.job.gpu, on_event=on_event)
    _keep(planned)
    return planned.folder / "adapter"


def forget(adapter: str, settings: Settings) -> None:
    """Remove an adapter with its training."""
    shutil.rmtree(adapter_folder(settings.paths.data, adapter), ignore_errors=True)


def _keep(planned: PlannedTraining) -> None:
    """Write the card of what was trained; checkpoints are needed no more."""
    job = planned.job
    lines = job.train.read_text(encoding="utf-8").splitlines()
    kernels = tuple(sorted({str(json.loads(line)["kernel"]) for line in lines if line.strip()}))
    content = content_of(planned.folder / "adapter")
    card = AdapterCard(name=job.adapter, method="sft", base=job.base, rank=job.rank, kernels=kernels, content=content)
    write_card(planned.folder, card)
    for checkpoint in planned.folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)


def _file(dataset: Path, name: str) -> Path:
    path = (dataset / name).absolute()
    if not (dataset / CARD).is_file() or not path.is_file():
        fix = "`kernel-lsp model collect` makes one; if it was killed, run it again."
        raise ConfigurationError("The folder holds no whole dataset", dataset, fix=fix)
    return path


def _digest(dataset: Path) -> str:
    digest = hashlib.sha256()
    for name in (TRAIN, HELD_OUT):
        digest.update(hashlib.sha256(_file(dataset, name).read_bytes()).digest())
    return digest.hexdigest()


def _training(job: SftJob) -> Training:
    return Training(job.rank, job.length, gpu=job.gpu is not None)
