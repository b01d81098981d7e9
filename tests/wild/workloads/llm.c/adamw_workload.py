"""llm.c's AdamW, which changes parameters and both moments in place, at the size of its own benchmark."""

import torch

CASES = [
    {"count": 3000},
    {"count": 1048576},
]
CONTRACT = {"contiguous": True, "finite": True, "mutates": ("parameters", "first", "second")}
VERSION = 1
RATE, BETA_1, BETA_2, EPSILON, DECAY, STEP = 1e-3, 0.9, 0.999, 1e-8, 0.01, 10


def inputs(count):
    parameters, gradients, first = (torch.rand(3, count, device="cuda") * 2 - 1).unbind(0)
    return parameters.clone(), gradients.clone(), first.clone(), torch.rand(count, device="cuda")


def reference(parameters, gradients, first, second):
    first = BETA_1 * first + (1 - BETA_1) * gradients
    second = BETA_2 * second + (1 - BETA_2) * gradients**2
    step = (first / (1 - BETA_1**STEP)) / (torch.sqrt(second / (1 - BETA_2**STEP)) + EPSILON)
    return parameters - RATE * (step + DECAY * parameters), first, second


def launch(module, parameters, gradients, first, second):
    kernel = module.adamw_kernel1 if VERSION == 1 else module.adamw_kernel2
    count = parameters.numel()
    corrections = (1 - BETA_1**STEP, 1 - BETA_2**STEP)
    kernel[-(-count // 512), 512](
        parameters, gradients, first, second, count, RATE, BETA_1, BETA_2, *corrections, EPSILON, DECAY
    )
    return parameters, first, second
