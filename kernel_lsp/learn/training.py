"""The records that a training and its process share: the job, and the events that it reports."""

import json
from pathlib import Path
from typing import Literal

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
        message, cure: why it failed, for the user.
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
    cure: str | None = None


def whole_checkpoint(folder: Path) -> bool:
    """Return True if a checkpoint was written to its end: the trainer's own state comes last."""
    try:
        json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (folder / "adapter_model.safetensors").is_file() and (folder / "optimizer.pt").is_file()
