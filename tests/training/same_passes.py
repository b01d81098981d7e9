"""Print how far adapters are apart that learned from samples one by one and several in a pass; runs where one trains.

python same_passes.py MODEL FOLDER
"""

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from kernel_lsp.learn.trainer import grpo
from kernel_lsp.learn.training import GrpoJob, TrainingBatch, TrainingSample, step_folder


def sample(number: int) -> TrainingSample:
    """A sample of one of two prompts, whose answer has a length of its own."""
    draw = torch.Generator().manual_seed(number)
    prompt = tuple(range(10 + number % 2, 30))
    tokens = tuple(torch.randint(40, 200, (6 + number,), generator=draw).tolist())
    said = {"answer": "", "result": "", "reason": "", "evidence": None, "score": 0.0, "reward": 0.0}
    place = {"kernel": "k", "trajectory": number, "turn": 0, "prompt": prompt, "tokens": tokens}
    return TrainingSample(**place, **said, logprobs=(-5.0,) * len(tokens), advantage=1.0 - number % 3)


def trained(model: str, folder: Path, context: int) -> dict[str, torch.Tensor]:
    """The adapter after a step with passes of so many tokens at most."""
    sizes = {"turns": 1, "trajectories": 8, "at_once": 1, "longest": 16, "context": context, "steps": 1, "seed": 0}
    known = {"adapter": "a", "kernels": ("k",), "weights": Path(model), "base": "b", "start": None, "begun": ""}
    job = GrpoJob(**known, **sizes, rank=4, rate=0.01, temperature=0.9, gamma=0.4, gpu=None)
    samples = tuple(sample(number) for number in range(8))
    batch = TrainingBatch(step=1, model="m", samples=samples, unjudged=0, seconds=1.0)
    (folder / "batches").mkdir(parents=True)
    (folder / "steps").mkdir()
    (folder / "batches/00001.json").write_text(batch.model_dump_json())
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    base.enable_input_require_grads()
    grpo.report = lambda _: None
    grpo.take_step(job, base, folder, 1)
    return load_file(step_folder(folder, 1) / "adapter/adapter_model.safetensors")


def main(model: str, folder: Path) -> None:
    """Print the largest difference, the largest weight, and the passes over four samples with room for two."""
    alone, together = (trained(model, folder / str(context), context) for context in (1, 4096))
    apart = max((alone[name] - together[name]).abs().max().item() for name in alone)
    largest = max(one.abs().max().item() for one in alone.values())
    groups = grpo.same_prompts([sample(number) for number in (0, 2, 4, 1)], 70)
    print(apart, largest, *map(len, groups))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
