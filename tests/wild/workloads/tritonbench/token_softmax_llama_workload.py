"""lightllm's softmax over the tokens of sequences that lie one behind the other."""

import torch

CASES = [
    {"heads": 3, "lengths": [5, 40, 17]},
    {"heads": 32, "lengths": [1024, 700, 2048, 3]},
]
CONTRACT = {"contiguous": True}


def inputs(heads, lengths):
    ends = torch.tensor(lengths).cumsum(0)
    starts = (ends - torch.tensor(lengths)).to("cuda", torch.int32)
    logits = torch.randn(heads, int(ends[-1]), device="cuda")
    return logits, starts, torch.tensor(lengths, device="cuda", dtype=torch.int32), max(lengths)


def reference(logits, starts, lengths, longest):
    out = torch.empty_like(logits)
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        out[:, start : start + length] = torch.softmax(logits[:, start : start + length], dim=-1)
    return out


def launch(module, logits, starts, lengths, longest):
    out = torch.empty_like(logits)
    module.token_softmax_fwd(logits, starts, lengths, out, longest)
    return out
