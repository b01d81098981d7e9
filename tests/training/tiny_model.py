"""Make a tiny chat model on the spot; runs in the Python that trains: `python tiny_model.py FOLDER [TEMPLATE]`.

FOLDER gets an untrained model of the Llama architecture whose tokens are bytes. TEMPLATE is `whole`, the default, or
`forgetful`: a chat template that leaves out all messages but the last.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MARKS = ("<pad>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
SHOWN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
BEGIN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TEMPLATES = {
    "whole": f"{{% for m in messages %}}{SHOWN}{{% endfor %}}{BEGIN}",
    "forgetful": f"{{% set m = messages[-1] %}}{SHOWN}{BEGIN}",
}


def main(folder: Path, template: str) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(MARKS))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATES[template]
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            initializer_range=0.2,  # an adapter of a model that says nothing has nothing to turn
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(sys.argv[2:] or ["whole"]))
