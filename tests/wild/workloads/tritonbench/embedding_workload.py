"""lightllm's rows of a table of words, of which this process has a part."""

import torch

CASES = [
    {"tokens": 50, "words": 100, "columns": 60},
    {"tokens": 4096, "words": 32000, "columns": 1024},
]
CONTRACT = {"contiguous": True}


def inputs(tokens, words, columns):
    ids = torch.randint(2 * words, (tokens,), device="cuda", dtype=torch.int32)
    return ids, torch.randn(words, columns, device="cuda")


def reference(ids, table):
    known = ids < table.shape[0]
    return torch.where(known[:, None], table[torch.where(known, ids, 0).long()], 0.0)


def launch(module, ids, table):
    out = table.new_empty(ids.shape[0], table.shape[1])
    module.embedding(ids, table, 0, table.shape[0], out)
    return out
