"""Multi-turn reinforcement learning on the judge's verdicts, after Kevin (Baronio et al., arXiv 2507.11948).

A step draws trajectories through the local server, has every answer judged in full, and trains on them in a process of
its own; then the server loads the new adapter under a new name. Each turn is a sample with the messages that it saw,
its return the discounted sum of its own and later scores (section 4 of the paper).

All state lies in `paths.data/adapters/NAME`, each part written beside its place and renamed: `batches/STEP.json` when a
step is drawn and judged, `steps/STEP` when it is learned from. So a run that is killed anywhere goes on where it was.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.learn.busy import BusyTime
from kernel_lsp.learn.canaries import TRAJECTORIES, canary_targets, counted, is_due, require_silence, uncollected
from kernel_lsp.learn.curriculum import chosen
from kernel_lsp.learn.curve import has_batch, read_batches, write_batch, write_curve
from kernel_lsp.learn.grpo_plan import PlannedPolicy
from kernel_lsp.learn.judges import Judges, opened_judges
from kernel_lsp.learn.kept import KeptEnvironments
from kernel_lsp.learn.process import (
    OnEvent,
    Trainer,
    free_on,
    open_trainer,
    require_packages,
    require_room,
    trainer_python,
)
from kernel_lsp.learn.reward import advantages, samples_of
from kernel_lsp.learn.rollout import Policy, SampledTurn, Trajectory, rollout, seed_at
from kernel_lsp.learn.serving import room_on, with_adapter
from kernel_lsp.learn.training import TrainingBatch, TrainingSample, step_folder
from kernel_lsp.model.adapters import AdapterCard, publish, write_card
from kernel_lsp.model.endpoint import Endpoint
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.refine.turn_outcome import NOT_JUDGED
from kernel_lsp.runner.shield import together
from kernel_lsp.store.store import Store

_TRAINER = "kernel_lsp.learn.trainer.grpo"
_KEPT_STEPS = 2  # with all that the next one needs


@dataclass
class _Run:
    """The state of a run that lasts beyond one step."""

    planned: PlannedPolicy
    settings: Settings
    store: Store
    judges: Judges
    environments: KeptEnvironments
    kept: AsyncExitStack
    trainer: Trainer | None = None


async def run_grpo(
    planned: PlannedPolicy,
    settings: Settings,
    store: Store,
    on_event: OnEvent,
    show: Callable[[str], None],
    pool: LanePool | None = None,
) -> Path:
    """Take the steps that are left, and return the folder of the adapter; a cancelled task ends all processes.

    Args:
        planned: what is trained.
        settings: in force.
        store: takes every turn and verdict.
        on_event: called with the trainer's report on each step.
        show: called with what is being done.
        pool: the lanes that judge answers; None for sessions here, which stay open.

    Raises:
        CannotJudgeError: the packages that train are missing, or no lane of the pool can be used any more.
        FooledJudgeError: a canary was made faster than it can be.
        DoesNotFitError: the memory does not suffice while the server sleeps.
        ModelError: the server failed.
        RunnerError: a worker or the trainer ended; what was done is kept.
    """
    job, folder = planned.job, planned.folder
    await require_packages(trainer_python(settings))
    opened = opened_judges(pool, settings, planned.profile, store, planned.gpu)
    async with opened as judges, KeptEnvironments(judges) as environments, AsyncExitStack() as kept:
        run = _Run(planned, settings, store, judges, environments, kept)
        for step in range(1, job.steps + 1):
            if step_folder(folder, step).is_dir():
                continue
            if not has_batch(folder, step):
                show(doing := f"step {step} of {job.steps}: answers are drawn and judged")
                batch = await _draw(run, step, lambda what, doing=doing: show(f"{doing}; {what}"))
                write_batch(folder, batch)
            show(f"step {step} of {job.steps}: learning")
            await _learn(run, step, on_event)
            write_curve(folder, job.adapter)
            _forget_old(folder, step)
    _publish(planned)
    return folder / "adapter"


async def _draw(run: _Run, step: int, show: Callable[[str], None]) -> TrainingBatch:
    """Return the batch of a step: trajectories on some of the kernels, judged, with their advantages.

    `show` takes what lanes do meanwhile.
    """
    planned, job = run.planned, run.planned.job
    begun, judging = time.monotonic(), BusyTime()
    numbers = chosen(job.kernels, job.at_once, step, read_batches(planned.folder))
    async with _policy(planned, step) as endpoint:
        policy = Policy(endpoint, planned.profile, job.temperature, 1.0)
        async with policy, run.judges.at_work(show):
            groups = await together(_group(run, policy, judging, step, number) for number in numbers)
            canaries = await _watched(run, policy, judging, step) if is_due(step) else {}
    drawn = {job.kernels[number]: group for number, group in zip(numbers, groups, strict=True)}
    return TrainingBatch(
        step=step,
        model=endpoint.model,
        samples=tuple(sample for key, group in drawn.items() for sample in paid_samples(key, group, job.gamma)),
        unjudged=sum(turn.outcome.result == NOT_JUDGED for group in groups for one in group for turn in one),
        canaries=canaries,
        seconds=time.monotonic() - begun,
        drawing_seconds=policy.drawing.seconds,
        judging_seconds=judging.seconds,
    )


async def _group(run: _Run, policy: Policy, judging: BusyTime, step: int, number: int) -> list[Trajectory]:
    """Return the trajectories of a step on one kernel, by its number."""
    planned, job = run.planned, run.planned.job
    key = job.kernels[number]
    async with run.environments.using(key, planned.targets[number], run.settings) as environment:
        return await rollout(
            environment,
            policy,
            name=f"grpo-{job.adapter}-{step:05}-{key[:12]}",
            trajectories=job.trajectories,
            turns=job.turns,
            seed=seed_at(job.seed, step, number),
            longest=job.longest,
            judging=judging,
        )


async def _watched(run: _Run, policy: Policy, judging: BusyTime, step: int) -> dict[str, int]:
    """Return how many answers on canaries had which result.

    Raises:
        FooledJudgeError: one is faster than it can be.
    """
    job = run.planned.job
    turns: list[SampledTurn] = []
    for number, target in enumerate(canary_targets()):
        name = target.source.path.stem
        async with run.environments.using(name, target, uncollected(run.settings)) as environment:
            done = await rollout(
                environment,
                policy,
                name=f"canary-{job.adapter}-{step:05}-{name}",
                trajectories=TRAJECTORIES,
                turns=1,
                seed=seed_at(job.seed, step, len(job.kernels) + number),
                longest=job.longest,
                judging=judging,
            )
        answers = [turn for one in done for turn in one]
        require_silence(target, answers)
        turns += answers
    return counted(turns)


def paid_samples(kernel: str, trajectories: Sequence[Trajectory], gamma: float) -> list[TrainingSample]:
    """Return the turns of a group that count, each with its return and its advantage over the same turn of others.

    The paper compares a turn with all turns of its group, where first turns come out better for no merit but their
    longer sum; within one turn's index they do not.
    """
    rewarded = samples_of([[turn.outcome for turn in one] for one in trajectories], gamma)
    found: list[TrainingSample] = []
    for one, advantage in zip(rewarded, advantages(rewarded), strict=True):
        turn = trajectories[one.trajectory][one.turn]
        found.append(
            TrainingSample(
                kernel=kernel,
                trajectory=one.trajectory,
                turn=one.turn,
                prompt=turn.prompt,
                tokens=turn.tokens,
                logprobs=turn.logprobs,
                answer=turn.answer,
                result=turn.outcome.result,
                reason=turn.outcome.reason,
                evidence=turn.evidence,
                score=one.score,
                reward=one.reward,
                advantage=advantage,
            )
        )
    return found


def _policy(planned: PlannedPolicy, step: int) -> AbstractAsyncContextManager[Endpoint]:
    """Have the server load the adapter as the step before left it, and forget it afterwards; yields its endpoint."""
    job = planned.job
    weights = step_folder(planned.folder, step - 1) / "adapter" if step > 1 else job.start
    return with_adapter(planned.endpoint, f"{job.adapter}-{step - 1:05}", weights)


async def _learn(run: _Run, step: int, on_event: OnEvent) -> None:
    """Train on the batch of a step.

    A trainer that has room beside the server and the judge is kept for all steps. Otherwise the judge's workers end,
    servers on that GPU sleep if need be, and the trainer ends after the step.
    """
    planned, gpu = run.planned, run.planned.gpu
    shutil.rmtree(planned.folder / "steps" / f"{step:05}.draft", ignore_errors=True)
    opened = open_trainer(trainer_python(run.settings), _TRAINER, planned.folder, gpu.uuid if gpu else None)
    if run.trainer is None and free_on(gpu) >= planned.needed:
        run.trainer = await run.kept.enter_async_context(opened)
    if run.trainer is not None:
        await run.trainer.take(step, _of_steps(on_event))
        return
    await run.environments.rest()
    async with room_on(gpu, planned.needed):
        require_room(planned.base, planned.training, free_on(gpu), planned.place)
        async with opened as trainer:
            await trainer.take(step, _of_steps(on_event))


def _of_steps(on_event: OnEvent) -> OnEvent:
    """Return a listener that passes on what is said of a step; that its process is done is no news to a user."""
    return lambda event: on_event(event) if event.kind == "step" else None


def _forget_old(folder: Path, step: int) -> None:
    """Delete what no later step needs; figures and batches stay."""
    for number in range(1, step - _KEPT_STEPS + 1):
        old = step_folder(folder, number)
        (old / "optimizer.pt").unlink(missing_ok=True)
        shutil.rmtree(old / "adapter", ignore_errors=True)


def _publish(planned: PlannedPolicy) -> None:
    """Make the last step's adapter the one of this name, with its card."""
    job, folder = planned.job, planned.folder
    content = publish(step_folder(folder, job.steps) / "adapter", folder)
    kernels = tuple(sorted(planned.seen))
    card = AdapterCard(name=job.adapter, method="grpo", base=job.base, rank=job.rank, kernels=kernels, content=content)
    write_card(folder, card)
