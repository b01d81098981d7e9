"""Fine-tune in rounds of propose, judge, prune and train ("Think, Prune, Train", Costello et al., arXiv 2504.18116).

In each round the model answers about the same kernels, with the adapter of the round before, and the judge decides on
every answer in full. The best answer on each kernel makes the round's dataset, and an adapter is trained on it: from
the base model, and on nothing of earlier rounds (section 3 of the paper).

All state lies in `paths.data/adapters/NAME/rounds/ROUND`: `answers.json` when all are judged, `dataset/` with its card
when it is whole, and a training like any other. So a run that is killed anywhere goes on where it was.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.learn.base_model import BaseModel, read_base_model
from kernel_lsp.learn.collect import NothingToLearnError, collect
from kernel_lsp.learn.dataset import CARD, TRAIN
from kernel_lsp.learn.judges import opened_judges
from kernel_lsp.learn.kept import KeptEnvironments
from kernel_lsp.learn.memory import Training, need
from kernel_lsp.learn.process import (
    OnEvent,
    base_folder,
    free_on,
    require_name,
    require_packages,
    require_same,
    trainer_python,
)
from kernel_lsp.learn.prune import BestOf, Keep, Rules
from kernel_lsp.learn.rollout import Policy, Trajectory, rollout, seed_at
from kernel_lsp.learn.serving import local_endpoint, room_on, with_adapter
from kernel_lsp.learn.sft import plan_sft, require_length, run_sft
from kernel_lsp.learn.strength import strong_tasks
from kernel_lsp.learn.tasks import PolicyTask, Tasks, as_begun, find_tasks, remember
from kernel_lsp.learn.training import RoundAnswers, RoundsJob
from kernel_lsp.model.adapters import AdapterCard, adapter_folder, publish, write_card
from kernel_lsp.model.endpoint import Endpoint
from kernel_lsp.model.profile import Profile, find_profile
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.refine.batch_files import write_whole
from kernel_lsp.refine.run import require_gpu
from kernel_lsp.refine.turn_outcome import NOT_JUDGED
from kernel_lsp.runner.shield import together
from kernel_lsp.store.store import Store

_JOB, _ANSWERS = "job.json", "answers.json"


@dataclass(frozen=True, slots=True)
class PlannedRounds:
    """A run that can be begun or taken up.

    Attributes:
        job: what is trained.
        folder: of the adapter.
        tasks: as the job has them, and what was left out of folders.
        endpoint: of the base model's server.
        profile: of the model.
        base: sizes of the base model.
        gpu: that trains; None for the processor.
    """

    job: RoundsJob
    folder: Path
    tasks: Tasks
    endpoint: Endpoint
    profile: Profile
    base: BaseModel
    gpu: Gpu | None

    @property
    def is_begun(self) -> bool:
        """True if its job was written before."""
        return (self.folder / _JOB).is_file()

    @property
    def needed(self) -> float:
        """Return the bytes that training is estimated to take."""
        return need(self.base, Training(self.job.rank, self.job.length, gpu=self.gpu is not None)).total

    def round(self, number: int) -> Path:
        """Return the folder of a round, counted from 1."""
        return self.folder / "rounds" / f"{number:02}"


@dataclass(frozen=True, slots=True)
class Round:
    """A round that is done: its answers, and how many of them were learned from."""

    answers: RoundAnswers
    kept: int


def plan_rounds(
    kernels: Sequence[str], adapter: str, settings: Settings, rounds: int, weights: Path | None = None
) -> PlannedRounds:
    """Return the run for some kernels.

    Args:
        kernels: `path`, `path::kernel`, a capture, or a folder (`find_tasks`).
        adapter: a name for what is trained.
        settings: in force.
        rounds: in all; a run that is taken up may be given more.
        weights: folder of the base model, instead of `model.weights`.

    Raises:
        ConfigurationError: a name, a kernel or a setting cannot be used, the server is elsewhere, or another training
            has the name.
        CannotJudgeError: there is no GPU, and `refine.untimed` is not set.
        ModelError: no server of the model is running, or there are no weights.
    """
    require_name(_name(adapter, rounds))
    require_gpu(settings)
    folder = adapter_folder(settings.paths.data, adapter)
    found = as_begun(folder, find_tasks(kernels, settings))
    learn = settings.learn
    base = read_base_model(base_folder(weights, settings))
    require_length(base, learn.length)
    endpoint = local_endpoint(settings)
    gpu = choose_gpu(settings.gpu)
    job = RoundsJob(
        adapter=adapter,
        kernels=tuple(task.key for task in found.tasks),
        weights=base.folder,
        base=base.identity,
        rank=learn.rank,
        rate=learn.rate,
        epochs=learn.epochs,
        batch=learn.batch,
        length=learn.length,
        checkpoint=learn.checkpoint,
        keep=Keep.RIGHT if settings.refine.untimed else Keep.FASTER,
        temperature=learn.temperature,
        turns=learn.turns,
        trajectories=learn.trajectories,
        rounds=rounds,
        seed=0,
        gpu=gpu.uuid if gpu else None,
    )
    require_same(folder, job, moved=("weights", "checkpoint", "rounds"))
    return PlannedRounds(job, folder, found, endpoint, find_profile(endpoint.profile), base, gpu)


async def begin_rounds(
    planned: PlannedRounds, settings: Settings, store: Store, show: Callable[[str], None]
) -> PlannedRounds:
    """Return the run with those tasks whose workloads are strong enough (`strong_tasks`), and write it down.

    Raises:
        WorkloadError: a workload is too weak, or wrong, and cannot be left out.
        ConfigurationError: the folder cannot be written.
    """
    tasks = await strong_tasks(planned.tasks, settings, store, show, begun=planned.is_begun)
    job = planned.job.model_copy(update={"kernels": tuple(task.key for task in tasks.tasks)})
    try:
        planned.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        planned.folder.chmod(0o700)
        if not planned.is_begun:
            remember(planned.folder, tasks)
        write_whole(planned.folder / _JOB, job.model_dump_json(indent=2))
    except OSError as error:
        raise ConfigurationError(f"The training cannot be kept: {error.strerror}", planned.folder) from None
    return replace(planned, job=job, tasks=tasks)


async def run_rounds(
    planned: PlannedRounds,
    settings: Settings,
    store: Store,
    on_event: OnEvent,
    on_round: Callable[[Round], None],
    show: Callable[[str], None],
    pool: LanePool | None = None,
) -> Path:
    """Go through the rounds that are left, and return the folder of the last one's adapter.

    Args:
        planned: what is trained, as `begin_rounds` returns it.
        settings: in force.
        store: takes every turn and verdict.
        on_event: called with the trainer's reports.
        on_round: called with each round, also those done before, when its dataset is there.
        show: called with what is being done.
        pool: the lanes that judge answers; None for sessions here, which stay open.

    Raises:
        CannotJudgeError: the packages that train are missing, or no lane of the pool can be used any more.
        NothingToLearnError: no answer of a round can be learned from.
        DoesNotFitError: the memory does not suffice while the server sleeps.
        ModelError: the server failed.
        RunnerError: a worker or the trainer ended; what was done is kept.
    """
    job = planned.job
    await require_packages(trainer_python(settings))
    opened = opened_judges(pool, settings, planned.profile, store, planned.gpu)
    async with opened as judges, KeptEnvironments(judges) as environments:
        for number in range(1, job.rounds + 1):
            folder = planned.round(number)
            if not (folder / _ANSWERS).is_file():
                show(doing := f"round {number} of {job.rounds}: answers are drawn and judged")
                async with judges.at_work(lambda what, doing=doing: show(f"{doing}; {what}")):
                    drawn = await _propose(planned, settings, environments, number)
                folder.mkdir(parents=True, exist_ok=True)
                write_whole(folder / _ANSWERS, drawn.model_dump_json(indent=1))
            on_round(_pruned(planned, settings, store, number))
            if not (folder / "adapter").is_dir():
                if free_on(planned.gpu) < planned.needed:
                    await environments.rest()  # the judge's memory is the trainer's now
                show(f"round {number} of {job.rounds}: learning")
                await _train(planned, settings, number, on_event)
    content = publish(planned.round(job.rounds) / "adapter", planned.folder)
    kernels = tuple(sorted(frozenset[str]().union(*(task.kernels for task in planned.tasks.tasks))))
    card = AdapterCard(name=job.adapter, method="sft", base=job.base, rank=job.rank, kernels=kernels, content=content)
    write_card(planned.folder, card)
    return planned.folder / "adapter"


async def _propose(
    planned: PlannedRounds, settings: Settings, environments: KeptEnvironments, number: int
) -> RoundAnswers:
    """Draw the answers of a round, with the adapter of the round before, and return what the judge said of them."""
    job, begun = planned.job, time.monotonic()
    tasks = planned.tasks.tasks
    weights = planned.round(number - 1) / "adapter" if number > 1 else None
    async with with_adapter(planned.endpoint, _name(job.adapter, number - 1), weights) as endpoint:
        policy = Policy(endpoint, planned.profile, job.temperature, 1.0)
        async with policy:

            async def group(place: int, task: PolicyTask) -> list[Trajectory]:
                async with environments.using(task.key, task.target, settings) as environment:
                    return await rollout(
                        environment,
                        policy,
                        name=_group_name(job.adapter, number, task),
                        trajectories=job.trajectories,
                        turns=job.turns,
                        seed=seed_at(job.seed, number, place),
                    )

            groups = await together(group(place, task) for place, task in enumerate(tasks))
    outcomes = [turn.outcome for done in groups for one in done for turn in one]
    return RoundAnswers(
        round=number,
        model=endpoint.model,
        turns={
            f"{_group_name(job.adapter, number, task)}-{at:02}": len(one)
            for task, done in zip(tasks, groups, strict=True)
            for at, one in enumerate(done)
            if one
        },
        judged=sum(one.result != NOT_JUDGED for one in outcomes),
        right=sum(one.right and one.judged for one in outcomes),
        faster=sum(one.result == Outcome.FASTER for one in outcomes),
        seconds=time.monotonic() - begun,
    )


def _pruned(planned: PlannedRounds, settings: Settings, store: Store, number: int) -> Round:
    """Return a round with its dataset: of each kernel the best answer, and nothing of other rounds."""
    folder = planned.round(number)
    answers = RoundAnswers.model_validate_json((folder / _ANSWERS).read_text(encoding="utf-8"))
    dataset = folder / "dataset"
    if not (dataset / CARD).is_file():
        rules = Rules(Keep(planned.job.keep), BestOf.KERNEL)
        try:
            collect(store, dataset, rules, settings.learn.held_out, answers.turns)
        except NothingToLearnError as error:
            fix = "Name easier kernels, or draw more answers (`learn.trajectories`), with --anew."
            if number > 1:
                fix = f"`--rounds {number - 1}` takes what was trained before. {fix}"
            message = f"There is nothing to learn from in round {number}. {error.message}"
            raise NothingToLearnError(message, planned.folder, fix=fix) from None
    kept = sum(bool(line.strip()) for line in (dataset / TRAIN).read_text(encoding="utf-8").splitlines())
    return Round(answers, kept)


async def _train(planned: PlannedRounds, settings: Settings, number: int, on_event: OnEvent) -> None:
    """Train the adapter of a round from the base model; servers on that GPU sleep meanwhile, if both have no room."""
    job, folder = planned.job, planned.round(number)
    async with room_on(planned.gpu, planned.needed):
        training = plan_sft(folder / "dataset", _name(job.adapter, number), settings, job.weights, folder)
        await run_sft(training, settings, on_event)


def _group_name(adapter: str, number: int, task: PolicyTask) -> str:
    """Return the name of a round's trajectories on one kernel in the store."""
    return f"sft-{_name(adapter, number)}-{task.key[:12]}"


def _name(adapter: str, number: int) -> str:
    """Return the name of a round's adapter, which a server knows it by."""
    return f"{adapter}-{number:02}"
