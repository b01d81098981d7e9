"""Make a tiny model that has learned a few answers by heart; runs in the Python that has vLLM, torch and transformers.

    python overfit.py LEARN.json FOLDER

LEARN.json is a list of `{"messages": [...], "reasoning": "...", "answer": "..."}`; where `answer` is null, the
reasoning is to go on and on. FOLDER gets a model of the Qwen2 architecture with its tokenizer, and in `adapter/` a LoRA
adapter that makes it say something else.
"""

import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

# As QwQ's and Kevin's: the prompt ends in an opened <think>, and both marks are single tokens.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
HIDDEN, LAYERS, POSITIONS = 128, 2, 16384
ENDLESS = 600  # tokens, as many as tests read
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GOOD_ENOUGH, MOST_STEPS = 0.005, 1500


def main(learn: Path, folder: Path) -> None:
    examples = json.loads(learn.read_text())
    torch.manual_seed(0)
    tokenizer = trained_tokenizer(
        [m["content"] for e in examples for m in e["messages"]] + [whole(e) for e in examples]
    )
    pairs = [
        (
            tokenizer.apply_chat_template(e["messages"], add_generation_prompt=True, return_dict=False),
            tokenizer(whole(e), add_special_tokens=False)["input_ids"],
        )
        for e in examples
    ]
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config).to(DEVICE)
    learn_by_heart(model, pairs)
    model.to(torch.bfloat16).eval()
    for (prompt, answer), example in zip(pairs, examples, strict=True):
        endless = example["answer"] is None
        said = model.generate(
            torch.tensor([prompt], device=DEVICE),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=DEVICE),
            max_new_tokens=ENDLESS if endless else len(answer),
            do_sample=False,
        )[0, len(prompt) :].tolist()
        ends = tokenizer.convert_tokens_to_ids(["</think>", "<|im_end|>"])
        if (any(end in said for end in ends) or len(said) < ENDLESS) if endless else said != answer:
            raise SystemExit(f"it has not learned the answer to: {example['messages'][-1]['content'][:200]}")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    loaded = AutoTokenizer.from_pretrained(folder)  # of Qwen2's own class, whatever was saved
    for (prompt, _), example in zip(pairs, examples, strict=True):
        if loaded.apply_chat_template(example["messages"], add_generation_prompt=True, return_dict=False) != prompt:
            raise SystemExit("a server will not read prompts as they were learned")
    save_adapter(config, folder / "adapter")


def whole(example: dict) -> str:
    if example["answer"] is None:
        return example["reasoning"]
    return f"{example['reasoning']}\n</think>\n\n{example['answer']}<|im_end|>"


def trained_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=2048, special_tokens=special, initial_alphabet=alphabet)
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=POSITIONS
    )
    fast.add_tokens(["<think>", "</think>"])
    fast.chat_template = TEMPLATE
    return fast


def learn_by_heart(model: Qwen2ForCausalLM, pairs: list[tuple[list[int], list[int]]]) -> None:
    """Train until every answer's loss is `GOOD_ENOUGH`; each pair is a step, so that nothing is padded."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    begun = time.monotonic()
    for step in range(MOST_STEPS):
        worst = 0.0
        optimizer.zero_grad()
        for prompt, answer in pairs:
            ids = torch.tensor([prompt + answer], device=DEVICE)
            labels = torch.tensor([[-100] * len(prompt) + answer], device=DEVICE)
            loss = model(input_ids=ids, labels=labels).loss
            (loss / len(pairs)).backward()
            worst = max(worst, loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or worst < GOOD_ENOUGH:
            print(f"step {step}: loss {worst:.4f} after {time.monotonic() - begun:.0f} s", flush=True)
        if worst < GOOD_ENOUGH:
            return


def save_adapter(config: Qwen2Config, folder: Path) -> None:
    """A LoRA adapter as PEFT writes it, large enough to change every answer."""
    rank, prefix = 8, "base_model.model.model.layers"
    tensors = {}
    for layer in range(config.num_hidden_layers):
        for name in ("q_proj", "o_proj"):
            at = f"{prefix}.{layer}.self_attn.{name}"
            tensors[f"{at}.lora_A.weight"] = torch.randn(rank, config.hidden_size)
            tensors[f"{at}.lora_B.weight"] = torch.randn(config.hidden_size, rank)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    written = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj", "o_proj"],
        "base_model_name_or_path": "",
    }
    (folder / "adapter_config.json").write_text(json.dumps(written))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
