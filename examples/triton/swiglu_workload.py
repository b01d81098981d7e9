"""SwiGLU at the intermediate sizes of Llama models. No `launch`: `swiglu` is the only public function of the file."""

import torch

CASES = [
    dict(tokens=4, hidden=1024),
    dict(tokens=2048, hidden=14336),
    dict(tokens=256, hidden=11008),
    dict(tokens=33, hidden=5461),
]

CONTRACT = dict(contiguous=True)


def inputs(tokens, hidden):
    gate = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    up = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    return gate, up


def reference(gate, up):
    return torch.nn.functional.silu(gate) * up
