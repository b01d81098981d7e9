"""Print our loss and gradients beside TRL's on the same samples; runs in the Python that trains.

python same_loss.py MODEL
"""

import sys

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from kernel_lsp.learn.trainer.grpo import CLIP_HIGH, CLIP_LOW, policy_loss, token_logprobs
from kernel_lsp.learn.training import TrainingSample

LONGEST, TEMPERATURE = 16, 0.9


def sample(number: int) -> TrainingSample:
    draw = torch.Generator().manual_seed(number)
    ids = torch.randint(10, 200, (20,), generator=draw).tolist()
    prompt, tokens = ids[: 5 + number], ids[5 + number :]
    said = {"answer": "", "result": "", "reason": "", "evidence": None, "score": 0.0, "reward": 0.0}
    place = {"kernel": "k", "trajectory": number, "turn": 0}
    logprobs = (0.0,) * len(tokens)
    return TrainingSample(
        **place, **said, prompt=tuple(prompt), tokens=tuple(tokens), logprobs=logprobs, advantage=(-1.0) ** number
    )


def main(folder: str) -> None:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    bounds = {"beta": 0.0, "epsilon": CLIP_LOW, "epsilon_high": CLIP_HIGH, "loss_type": "dr_grpo"}
    sizes = {"num_generations": 4, "per_device_train_batch_size": 4, "max_completion_length": LONGEST}
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig("unused", **bounds, **sizes, temperature=TEMPERATURE, report_to=[], use_cpu=True, bf16=False),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "x"}]}] * 4),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    model = trainer.model
    weights = {name: one for name, one in model.named_parameters() if one.requires_grad}
    for one in weights.values():
        torch.nn.init.normal_(one, std=0.1)
    samples = [sample(number) for number in range(4)]
    advantages = torch.tensor([one.advantage for one in samples])
    model.eval()
    with torch.no_grad():
        old, mask = token_logprobs(model, samples, TEMPERATURE)
    old = old + 0.3 * torch.randn_like(old)  # as if a step behind, so that some tokens are clipped
    new, _ = token_logprobs(model, samples, TEMPERATURE)
    ours = policy_loss(new, old, advantages[:, None], torch.ones_like(old), mask, LONGEST) / len(samples)
    ours.backward()
    gradients = {name: one.grad.clone() for name, one in weights.items()}
    model.zero_grad()
    width = max(len(one.prompt) for one in samples)
    pad = tokenizer.pad_token_id
    prompts = [[pad] * (width - len(one.prompt)) + [*one.prompt] for one in samples]
    there = [[0] * (width - len(one.prompt)) + [1] * len(one.prompt) for one in samples]
    answers = [[*one.tokens] + [pad] * (old.shape[1] - len(one.tokens)) for one in samples]
    inputs = {"prompt_ids": torch.tensor(prompts), "prompt_mask": torch.tensor(there), "completion_mask": mask}
    inputs |= {"completion_ids": torch.tensor(answers), "advantages": advantages, "old_per_token_logps": old}
    trainer.current_gradient_accumulation_steps = 1
    theirs = trainer._compute_loss(model, inputs | {"num_items_in_batch": mask.sum()})
    theirs.backward()
    apart = max((gradients[name] - one.grad).abs().max().item() for name, one in weights.items())
    largest = max(one.abs().max().item() for one in gradients.values())
    print(ours.item(), theirs.item(), apart, largest)


if __name__ == "__main__":
    main(sys.argv[1])
