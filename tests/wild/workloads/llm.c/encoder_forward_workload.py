"""llm.c's embeddings of tokens and places in float32, at the size of GPT-2."""

import torch

CASES = [
    {"batch": 2, "tokens": 16, "channels": 64, "words": 100},
    {"batch": 8, "tokens": 1024, "channels": 768, "words": 50257},
]
CONTRACT = {"contiguous": True, "aligned": 16, "multiples": {"channels": 4}}
VERSION = 1


def inputs(batch, tokens, channels, words):
    ids = torch.randint(words, (batch, tokens), device="cuda", dtype=torch.int32)
    by_word = torch.randn(words, channels, device="cuda")
    by_place = torch.randn(tokens, channels, device="cuda")
    return ids, by_word, by_place


def reference(ids, by_word, by_place):
    return by_word[ids.long()] + by_place


def launch(module, ids, by_word, by_place):
    (batch, tokens), channels = ids.shape, by_word.shape[1]
    out = by_word.new_empty(batch, tokens, channels)
    arguments = (out, ids, by_word, by_place, batch, tokens, channels)
    if VERSION == 1:
        module.encoder_forward_kernel1[-(-batch * tokens // 128), 128](*arguments)
    elif VERSION == 2:
        module.encoder_forward_kernel2[-(-out.numel() // 256), 256](*arguments)
    else:
        module.encoder_forward_kernel3[-(-out.numel() // (256 * 4)), 256](*arguments)
    return out
