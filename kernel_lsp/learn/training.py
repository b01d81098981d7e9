"""The records that a training and its process share: the job, and the events that it reports."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from kernel_lsp.judge.record import Record

EVENTS = "KERNEL_LSP_EVENTS"
"""Environment variable with the descriptor that the process writes its events to, one JSON object a line."""


class SftJob(Record):
    """Supervised fine-tuning of an adapter.

    Attributes:
        adapter: name of the adapter.
        train, held_out: files of the dataset; nothing is trained on the second.
        dataset: SHA-256 of both.
        weights: folder of the base model.
        base: its identity (`BaseModel.identity`).
        rank: of the adapter.
        rate: learning rate, constant.
        epochs: times that each conversation is seen.
        batch: conversations in one step of the optimizer.
        length: tokens of the longest conversation; longer ones are left out.
        checkpoint: steps between two checkpoints.
        seed: of the order of the conversations and of the adapter's first weights.
        gpu: UUID of the GPU; None for the processor.
    """

    adapter: str
    train: Path
    held_out: Path
    dataset: str
    weights: Path
    base: str
    rank: int
    rate: float
    epochs: int
    batch: int
    length: int
    checkpoint: int
    seed: int
    gpu: str | None


class GrpoJob(Record):
    """Reinforcement learning of an adapter.

    Attributes:
        adapter: name of the adapter.
        kernels: digests of the kernels (`kernel_key`), in the order in which they were named.
        weights: folder of the base model.
        base: its identity (`kernel_lsp.model.adapters`).
        start: folder of the adapter that it begins from; None for a new one.
        begun: digest of that adapter's weights; empty for a new one.
        rank: of the adapter.
        rate: learning rate, constant.
        temperature: at which answers are drawn.
        gamma: discount of later turns.
        turns: answers in a trajectory.
        trajectories: on each kernel, in one step.
        at_once: kernels in one step.
        longest: tokens of the longest answer.
        context: tokens of the longest conversation, which a pass over several samples does not exceed either.
        steps: in all.
        seed: of all that is random.
        gpu: UUID of the GPU that trains; None for the processor.
    """

    adapter: str
    kernels: tuple[str, ...]
    weights: Path
    base: str
    start: Path | None
    begun: str
    rank: int
    rate: float
    temperature: float
    gamma: float
    turns: int
    trajectories: int
    at_once: int
    longest: int
    context: int
    steps: int
    seed: int
    gpu: str | None


class RoundsJob(Record):
    """Fine-tuning in rounds, each on what the adapter of the round before answered ("Think, Prune, Train").

    Attributes:
        adapter: name of the adapter.
        kernels: keys of the tasks, in the order in which they were named.
        weights: folder of the base model, from which each round trains anew.
        base: its identity (`kernel_lsp.model.adapters`).
        rank, rate, epochs, batch, length, checkpoint: of each training, as in `SftJob`.
        keep: the least that an answer must be (`Keep`).
        temperature: at which answers are drawn.
        turns: answers in a trajectory.
        trajectories: on each kernel, in one round.
        rounds: in all.
        seed: of all that is random.
        gpu: UUID of the GPU that trains; None for the processor.
    """

    adapter: str
    kernels: tuple[str, ...]
    weights: Path
    base: str
    rank: int
    rate: float
    epochs: int
    batch: int
    length: int
    checkpoint: int
    keep: str
    temperature: float
    turns: int
    trajectories: int
    rounds: int
    seed: int
    gpu: str | None


class RoundAnswers(Record):
    """The answers of one round, written when all are judged.

    Attributes:
        round: from 1.
        model: name that the server knew the policy by.
        turns: how many each trajectory has, by its session in the store.
        judged: answers on which something was decided.
        right: those that are right by a full judgement.
        faster: those that are FASTER.
        seconds: wall time of drawing and judging.
    """

    round: int
    model: str
    turns: Mapping[str, int]
    judged: int
    right: int
    faster: int
    seconds: float


class TrainingSample(Record):
    """One turn to learn from: what was given, what was answered, and the advantage of that.

    Attributes:
        kernel: digest of the kernel.
        trajectory, turn: its place, each from 0.
        prompt, tokens: token ids.
        logprobs: of each token of the answer when it was drawn.
        answer: its text.
        result, reason: of the judgement (`TurnOutcome`).
        evidence: id of the verdict; None where there was none, and then nothing was paid.
        score, reward, advantage: see `kernel_lsp.learn.reward`.
    """

    kernel: str
    trajectory: int
    turn: int
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    answer: str
    result: str
    reason: str
    evidence: str | None
    score: float
    reward: float
    advantage: float


class TrainingBatch(Record):
    """The samples of one step, written whole before it is learned from.

    Attributes:
        step: from 1.
        model: name that the server knew the policy by.
        samples: every turn that counts.
        unjudged: turns on which nothing was decided, which are in no sample.
        canaries: answers on canaries by result, where they were asked; nothing is learned from them.
        seconds: wall time of drawing and judging.
        drawing_seconds, judging_seconds: in which at least one answer was drawn, or judged; they overlap.
    """

    step: int
    model: str
    samples: tuple[TrainingSample, ...]
    unjudged: int
    canaries: Mapping[str, int] = Field(default_factory=dict[str, int])
    seconds: float
    drawing_seconds: float = 0.0
    judging_seconds: float = 0.0


class StepFigures(Record):
    """The figures of one step of learning.

    Attributes:
        samples: that it learned from: those with an advantage.
        loss: mean over the optimizer's steps.
        gradient: largest norm before it was clipped.
        clipped: share of tokens whose ratio was outside of the bounds.
        learning_seconds: wall time of the optimizer's steps, without loading the model.
    """

    samples: int
    loss: float
    gradient: float
    clipped: float
    learning_seconds: float


class TrainingEvent(Record):
    """One report of the process.

    Attributes:
        kind: `read` after the dataset, `resumed` from a checkpoint, `step` after one of the optimizer, `held-out` after
            the loss there, `done`, or `failed`.
        step, steps: of the optimizer, done and in all.
        loss: mean over a step's tokens, or over those that were held out.
        tokens: seen so far.
        rate: tokens a second since the last report.
        kept, longer: conversations that are trained on, and those longer than the job's length.
        message, fix: why it failed, for the user.
    """

    kind: Literal["read", "resumed", "step", "held-out", "done", "failed"]
    step: int = 0
    steps: int = 0
    loss: float | None = None
    tokens: int = 0
    rate: float | None = None
    kept: int = 0
    longer: int = 0
    message: str = ""
    fix: str | None = None


def step_folder(folder: Path, step: int) -> Path:
    """Return the folder of the state after a step; it is there only when it was written to its end."""
    return folder / "steps" / f"{step:05}"


def whole_checkpoint(folder: Path) -> bool:
    """Return True if a checkpoint was written to its end: the trainer's own state comes last."""
    try:
        json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (folder / "adapter_model.safetensors").is_file() and (folder / "optimizer.pt").is_file()
