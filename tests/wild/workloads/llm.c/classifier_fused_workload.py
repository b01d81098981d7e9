"""llm.c's loss and its gradient over logits, in one kernel: rows of 50,257 words, padded to 50,304."""

import torch

CASES = [
    {"rows": 8, "words": 1000, "padded": 1024},
    {"rows": 1024, "words": 50257, "padded": 50304},
]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True, "multiples": {"rows": 4, "padded": 128}}
VERSION = 1


def inputs(rows, words, padded):
    logits = torch.rand(rows, padded, device="cuda") * 2 - 1
    targets = torch.randint(words, (rows,), device="cuda", dtype=torch.int32)
    return logits, torch.randn(rows, device="cuda"), targets, words


def reference(logits, losses, targets, words):
    rows = torch.arange(logits.shape[0], device=logits.device)
    logarithms = torch.log_softmax(logits[:, :words], dim=-1)
    hits = torch.zeros_like(logarithms)
    hits[rows, targets.long()] = 1
    return (logarithms.exp() - hits) * losses[:, None], -logarithms[rows, targets.long()]


def launch(module, logits, losses, targets, words):
    rows, padded = logits.shape
    gradient, out = torch.empty_like(logits), torch.empty_like(losses)
    sizes = (1, rows, words, padded)
    if VERSION == 1:
        module.fused_classifier_kernel1[rows // 4, 128](gradient, out, logits, losses, targets, *sizes)
    else:
        kernel = module.fused_classifier_kernel2 if VERSION == 2 else module.fused_classifier_kernel3
        kernel[rows, 1024](gradient, out, 0, logits, losses, targets, *sizes)
    return gradient[:, :words], out
