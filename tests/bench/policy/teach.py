"""Make a small chat model on the spot and teach it answers; runs in the Python that trains.

`python teach.py TRACES FOLDER SECONDS LAYERS WIDTH`: TRACES has a line for each conversation (`messages`, `answer`);
FOLDER gets the model and its tokenizer. It learns how answers look, not which are good, for they are random.
"""

import json
import math
import random
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

POSITIONS = 8192
WORDS = 1500
RATE = 1.5e-3
BATCH = 16
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer_of(texts: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of whole digits whose words are those of the texts."""
    core = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    core.decoder = decoders.ByteLevel()
    marks = ["<pad>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=WORDS, special_tokens=marks, initial_alphabet=alphabet)
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def model_of(tokenizer: PreTrainedTokenizerFast, layers: int, width: int) -> LlamaForCausalLM:
    """An untrained model."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            num_key_value_heads=width // 64,
            max_position_embeddings=POSITIONS,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            tie_word_embeddings=True,
        )
    )


def loss_of(model: LlamaForCausalLM, samples: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    """The mean loss of the answers' tokens; conversations are padded on the right, where nothing looks back at it."""
    longest = max(len(prompt) + len(answer) for prompt, answer in samples)
    ids, wanted = [], []
    for prompt, answer in samples:
        after = longest - len(prompt) - len(answer)
        ids.append(prompt + answer + [0] * after)
        wanted.append([-100] * len(prompt) + answer + [-100] * after)
    tokens, labels = (torch.tensor(one, device=model.device) for one in (ids, wanted))
    found = model(input_ids=tokens).logits[:, :-1]
    return torch.nn.functional.cross_entropy(found.float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


def main(traces: Path, folder: Path, seconds: float, layers: int, width: int) -> None:
    """Teach for so many seconds, save, and print steps and loss as JSON."""
    rows = [json.loads(line) for line in traces.read_text().splitlines()]
    told = [message["content"] for row in rows[::4] for message in row["messages"]]
    tokenizer = tokenizer_of(told + [row["answer"] for row in rows])
    samples = [
        (
            tokenizer.apply_chat_template(row["messages"], add_generation_prompt=True, return_dict=False),
            [*tokenizer(row["answer"])["input_ids"], tokenizer.eos_token_id],
        )
        for row in rows
    ]
    torch.manual_seed(0)
    chance = random.Random(0)
    gpu = torch.cuda.is_available()
    model = model_of(tokenizer, layers, width).to("cuda" if gpu else "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    begun, losses = time.monotonic(), list[float]()
    while (share := (time.monotonic() - begun) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (len(losses) + 1) / 30) * (0.5 + 0.5 * math.cos(math.pi * share))
        with torch.autocast("cuda", torch.bfloat16, enabled=gpu):
            loss = loss_of(model, chance.sample(samples, min(BATCH, len(samples))))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.to(torch.bfloat16 if gpu else torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    lengths = [len(prompt) + len(answer) for prompt, answer in samples]
    figures = {"steps": len(losses), "loss": sum(losses[-10:]) / len(losses[-10:]), "longest": max(lengths)}
    print(json.dumps(figures | {"parameters": sum(one.numel() for one in model.parameters())}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
