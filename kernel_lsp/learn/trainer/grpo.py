"""Take steps of reinforcement learning; run as `python -m kernel_lsp.learn.trainer.grpo FOLDER`.

Imports torch and peft at its top. Its standard input has the number of a step in each line; where a GPU has no room for
it beside the server and the judge, it is ended after each. It reads `job.json`, the batch of the step, and the state of
the step before; it writes the new adapter, the optimizer's state and the figures to `steps/STEP.draft`, and renames
that when all is written. So a step depends on the files alone, whichever process takes it.

It is told token ids and numbers, never texts or verdicts. The loop with its rollouts lies in the parent, which imports
no torch. TRL's `GRPOTrainer` owns that loop itself, and lends it out by a `rollout_func` that it calls experimental;
so the loss is written out here, and a test holds it against TRL's own.
"""

# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportMissingTypeArgument=false
# These packages are in no environment but the one that trains.

import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from kernel_lsp.learn.trainer.events import report
from kernel_lsp.learn.training import GrpoJob, StepFigures, TrainingBatch, TrainingEvent, TrainingSample, step_folder

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""Bounds of the probability ratio, as Kevin has them (Baronio et al., arXiv 2507.11948) after the "Clip-Higher" of DAPO
(Yu et al., arXiv 2503.14476, section 3.1)."""
MOST_GRADIENT = 0.05
"""Norm to which gradients are clipped, as Kevin has it."""
MOST_WEIGHT = 2.0
"""Limit of the importance weight of a token against its sampler, whose kernels round otherwise than the trainer's."""
HALVES = 2
"""Steps of the optimizer for each batch: the second learns from answers of the policy before the first, as Kevin's."""


def token_logprobs(
    model: Any, samples: Sequence[TrainingSample], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each token of the answers, and a mask: 1 for a token, 0 for padding.

    Both have the shape (samples, longest answer). Prompts are padded on the left, so that all answers begin at the same
    column; answers are padded on the right.
    """
    width = max(len(one.prompt) for one in samples)
    length = max(len(one.tokens) for one in samples)
    ids, seen = [], []
    for one in samples:
        before, after = width - len(one.prompt), length - len(one.tokens)
        ids.append([0] * before + [*one.prompt, *one.tokens] + [0] * after)
        seen.append([0] * before + [1] * (len(one.prompt) + len(one.tokens)) + [0] * after)
    tokens, mask = torch.tensor(ids, device=model.device), torch.tensor(seen, device=model.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions, logits_to_keep=length + 1).logits
    found = torch.log_softmax(logits[:, :-1].float() / temperature, -1)
    return found.gather(-1, tokens[:, width:, None])[..., 0], mask[:, width:]


def policy_loss(
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    mask: torch.Tensor,
    longest: int,
) -> torch.Tensor:
    """Return the sum of the clipped objective over tokens, over the longest answer that is allowed, negated.

    The clipped ratio is PPO's as GRPO has it (Shao et al., arXiv 2402.03300, section 4.1) without a KL term; the
    constant in place of each answer's own length is Dr. GRPO's (Liu et al., arXiv 2503.20783, section 3), so that wrong
    answers gain nothing from being long. Divided by the number of samples it is TRL's `dr_grpo`.

    Args:
        new: log-probabilities under the policy, (samples, tokens).
        old: the same before the batch.
        advantages: of each sample, (samples, 1).
        weights: importance weights of the tokens against their sampler, (samples, tokens).
        mask: 1 where there is a token.
        longest: tokens of the longest answer that is allowed.
    """
    ratio = torch.exp(new - old)
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    objective = torch.min(ratio * advantages, clipped * advantages) * weights
    return -(objective * mask).sum() / longest


def take_step(job: GrpoJob, base: Any, folder: Path, step: int) -> Any:
    """Train on the batch of a step, write the state after it, and return the base model as it was given."""
    torch.manual_seed(job.seed + step)
    batch = TrainingBatch.model_validate_json((folder / "batches" / f"{step:05}.json").read_text(encoding="utf-8"))
    samples = [one for one in batch.samples if one.advantage != 0.0]
    random.Random(job.seed + step).shuffle(samples)
    model = _model(job, base, folder, step)
    optimizer = torch.optim.AdamW(
        [one for one in model.parameters() if one.requires_grad], lr=job.rate, betas=(0.9, 0.95), weight_decay=0.0
    )
    if step > 1:
        optimizer.load_state_dict(torch.load(step_folder(folder, step - 1) / "optimizer.pt", weights_only=True))
    figures = _learn(job, model, optimizer, samples)
    draft = folder / "steps" / f"{step:05}.draft"
    model.save_pretrained(draft / "adapter")
    torch.save(optimizer.state_dict(), draft / "optimizer.pt")
    (draft / "figures.json").write_text(figures.model_dump_json(), encoding="utf-8")
    draft.rename(step_folder(folder, step))
    tokens = sum(len(one.tokens) for one in samples)
    report(TrainingEvent(kind="step", step=step, steps=job.steps, loss=figures.loss, tokens=tokens))
    report(TrainingEvent(kind="done", step=step, steps=job.steps))
    return model.unload()


def same_prompts(samples: Sequence[TrainingSample], tokens: int) -> list[list[TrainingSample]]:
    """Return samples in groups for one pass each: those with the same prompt, up to so many tokens with padding."""
    found: list[list[TrainingSample]] = []
    open_: dict[tuple[int, ...], list[TrainingSample]] = {}
    for one in samples:
        group = open_.get(one.prompt, [])
        longest = max(len(some.tokens) for some in (*group, one))
        if not group or (len(group) + 1) * (len(one.prompt) + longest) > tokens:
            group = open_[one.prompt] = []
            found.append(group)
        group.append(one)
    return found


def _learn(
    job: GrpoJob, model: Any, optimizer: torch.optim.Optimizer, samples: Sequence[TrainingSample]
) -> StepFigures:
    """Take the optimizer's steps, samples with the same prompt in one pass, and return their figures."""
    if not samples:
        return StepFigures(samples=0, loss=0.0, gradient=0.0, clipped=0.0, learning_seconds=0.0)
    begun = time.monotonic()
    halves = [same_prompts(samples[at::HALVES], job.context) for at in range(HALVES)]
    with torch.no_grad():  # the policy before the batch; in the first half the one that learns is that
        old = [[token_logprobs(model, group, job.temperature)[0] for group in half] for half in halves[1:]]
    loss, norms, clipped, tokens = 0.0, [0.0], 0.0, 0
    for half, before in zip(halves, ([None] * len(halves[0]), *old), strict=True):
        if not half:
            continue
        optimizer.zero_grad()
        for group, known in zip(half, before, strict=True):
            new, mask = token_logprobs(model, group, job.temperature)
            was = new.detach() if known is None else known
            weights = torch.exp(was - _drawn(group, new)).clamp(max=MOST_WEIGHT)
            advantages = torch.tensor([[one.advantage] for one in group], device=new.device)
            part = policy_loss(new, was, advantages, weights, mask, job.longest) / sum(map(len, half))
            part.backward()
            ratio = torch.exp(new.detach() - was)
            outside = (ratio < 1 - CLIP_LOW) & (advantages < 0) | (ratio > 1 + CLIP_HIGH) & (advantages > 0)
            loss, tokens = loss + part.item(), tokens + mask.sum().item()
            clipped += (outside * mask).sum().item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), MOST_GRADIENT).item())
        optimizer.step()
    return StepFigures(
        samples=len(samples),
        loss=loss / HALVES,
        gradient=max(norms),
        clipped=clipped / tokens,
        learning_seconds=time.monotonic() - begun,
    )


def _drawn(group: Sequence[TrainingSample], like: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of a group's tokens when they were drawn, with zeros for padding."""
    found = torch.zeros_like(like)
    for row, one in zip(found, group, strict=True):
        row[: len(one.logprobs)] = torch.tensor(one.logprobs)
    return found


def _base(job: GrpoJob) -> Any:
    """Return the base model."""
    dtype = torch.bfloat16 if job.gpu else torch.float32
    base = AutoModelForCausalLM.from_pretrained(job.weights, dtype=dtype, local_files_only=True)
    base.to("cuda" if job.gpu else "cpu")
    base.config.use_cache = False
    base.gradient_checkpointing_enable({"use_reentrant": False})
    base.enable_input_require_grads()
    return base


def _model(job: GrpoJob, base: Any, folder: Path, step: int) -> Any:
    """Return the base with the adapter as the step before left it, or as it begins."""
    begun = step_folder(folder, step - 1) / "adapter" if step > 1 else job.start
    if begun is not None:
        model = PeftModel.from_pretrained(base, begun, is_trainable=True)
    else:
        wanted = LoraConfig(
            r=job.rank, lora_alpha=2 * job.rank, target_modules="all-linear", task_type="CAUSAL_LM", lora_dropout=0.0
        )
        model = get_peft_model(base, wanted)
    for one in model.parameters():
        if one.requires_grad:
            one.data = one.data.float()  # steps of the optimizer are too small for 16 bits
    model.train()
    return model


def main() -> None:
    """Take the steps that the standard input names, and report how each ended."""
    folder = Path(sys.argv[1])
    job = GrpoJob.model_validate(json.loads((folder / "job.json").read_text(encoding="utf-8")))
    try:
        base = _base(job)
        for line in sys.stdin:
            base = take_step(job, base, folder, int(line))
    except torch.OutOfMemoryError:
        fix = "Lower `learn.length` or `learn.rank` and start again; or let `learn.gpu` name a larger GPU."
        report(TrainingEvent(kind="failed", message="The GPU's memory ran out while training.", fix=fix))
        sys.exit(2)


if __name__ == "__main__":
    main()
