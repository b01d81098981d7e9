"""xFormers' choice of rows."""

import torch

CASES = [
    {"rows": 40, "chosen": 11, "columns": 70},
    {"rows": 16384, "chosen": 8192, "columns": 1024},
]
CONTRACT = {"contiguous": True}


def inputs(rows, chosen, columns):
    source = torch.randn(rows, columns, device="cuda")
    return source, torch.randperm(rows, device="cuda")[:chosen]


def reference(source, index):
    return source[index]


def launch(module, source, index):
    out = source.new_empty(index.shape[0], source.shape[1])
    return module.index_select_cat_fwd(out, source, index)
