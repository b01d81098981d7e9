"""Train an adapter on conversations; run as `python -m kernel_lsp.learn.trainer.sft FOLDER`, a process of its own.

Imports torch, transformers, peft and TRL at its top. FOLDER holds `job.json` and takes the checkpoints; the adapter
goes to `adapter/` there. Events go to the descriptor in `KERNEL_LSP_EVENTS`, everything else to the log.

The loss is on the answer's tokens alone; the adapter is on all linear layers, and begins anew from the base model
("Think, Prune, Train", Costello et al., arXiv 2504.18116).
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# These packages are in no environment but the one that trains.

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, TrainerCallback
from trl import SFTConfig, SFTTrainer

from kernel_lsp.learn.trainer.conversations import NotTrainableError, tokenised
from kernel_lsp.learn.trainer.events import report
from kernel_lsp.learn.training import SftJob, TrainingEvent, whole_checkpoint


class _Reports(TrainerCallback):
    """Tells each step's loss and speed."""

    def __init__(self) -> None:
        self._tokens, self._since = 0, time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have every step logged, the first too."""
        control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Report what is logged."""
        logs = logs or {}
        step, steps = state.global_step, state.max_steps
        if "eval_loss" in logs:
            report(TrainingEvent(kind="held-out", step=step, steps=steps, loss=logs["eval_loss"], tokens=self._tokens))
            self._since = time.monotonic()
        elif "loss" in logs:
            tokens, now = int(logs.get("num_tokens", 0)), time.monotonic()
            rate = (tokens - self._tokens) / (now - self._since) if self._tokens else None
            self._tokens, self._since = tokens, now
            report(TrainingEvent(kind="step", step=step, steps=steps, loss=logs["loss"], tokens=tokens, rate=rate))


def train(job: SftJob, folder: Path) -> None:
    """Train the adapter of a job, from the last whole checkpoint in its folder if there is one.

    Raises:
        NotTrainableError: the dataset and the model do not fit each other.
    """
    torch.manual_seed(job.seed)
    tokenizer = AutoTokenizer.from_pretrained(job.weights, local_files_only=True)
    rows, longer = tokenised(tokenizer, job.train, job.length)
    if not rows:
        raise NotTrainableError(f"All {longer} conversations are longer than {job.length:,} tokens (`learn.length`).")
    held_out, _ = tokenised(tokenizer, job.held_out, job.length)
    report(TrainingEvent(kind="read", kept=len(rows), longer=longer))
    trainer = SFTTrainer(
        model=_model(job),
        args=_arguments(job, folder, held_out=bool(held_out)),
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(held_out) if held_out else None,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=job.rank, lora_alpha=2 * job.rank, target_modules="all-linear", task_type="CAUSAL_LM", lora_dropout=0.0
        ),
        callbacks=[_Reports()],
    )
    checkpoint = last_checkpoint(folder)
    if checkpoint is not None:
        report(TrainingEvent(kind="resumed", step=int(checkpoint.name.partition("-")[2])))
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    draft = folder / "adapter.draft"
    shutil.rmtree(draft, ignore_errors=True)
    trainer.save_model(str(draft))
    (draft / "training_args.bin").unlink(missing_ok=True)  # a pickle, which no server needs
    draft.rename(folder / "adapter")
    state = trainer.state
    report(TrainingEvent(kind="done", step=state.global_step, steps=state.max_steps))


def last_checkpoint(folder: Path) -> Path | None:
    """Return the latest whole checkpoint, and remove those that a kill left unfinished."""
    found: list[Path] = []
    for path in folder.glob("checkpoint-*"):
        if whole_checkpoint(path):
            found.append(path)
        else:
            shutil.rmtree(path)
    return max(found, key=lambda path: int(path.name.partition("-")[2]), default=None)


def _model(job: SftJob) -> PreTrainedModel:
    dtype = torch.bfloat16 if job.gpu else torch.float32
    model = AutoModelForCausalLM.from_pretrained(job.weights, dtype=dtype, local_files_only=True)
    model.config.use_cache = False
    return model


def _arguments(job: SftJob, folder: Path, *, held_out: bool) -> SFTConfig:
    return SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=job.batch,
        num_train_epochs=job.epochs,
        learning_rate=job.rate,
        lr_scheduler_type="constant",
        max_length=None,
        completion_only_loss=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=job.gpu is not None,
        use_cpu=job.gpu is None,
        logging_steps=1,
        save_strategy="steps",
        save_steps=job.checkpoint,
        save_total_limit=2,
        eval_strategy="epoch" if held_out else "no",
        report_to=[],
        disable_tqdm=True,
        seed=job.seed,
        data_seed=job.seed,
    )


def main() -> None:
    """Train the job of the folder that the command line names, and report how that ended."""
    folder = Path(sys.argv[1])
    job = SftJob.model_validate_json((folder / "job.json").read_text(encoding="utf-8"))
    try:
        train(job, folder)
    except NotTrainableError as error:
        report(TrainingEvent(kind="failed", message=str(error)))
        sys.exit(2)
    except torch.OutOfMemoryError:
        fix = "Lower `learn.length` or `learn.rank`; what was trained so far is kept."
        report(TrainingEvent(kind="failed", message="The GPU's memory ran out while training.", fix=fix))
        sys.exit(2)


if __name__ == "__main__":
    main()
