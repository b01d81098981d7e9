"""Sums of sorted inputs: an honest loop's partial sums are far larger than the whole, and it may be as far off."""

import pytest
from oracle_support import Trial, Version, right

MEANS = """import torch
CASES = [dict(rows=512, channels=768)]
def inputs(rows, channels):
    return torch.rand(rows, channels, device="cuda") * 2 - 1
def reference(x):
    return x.mean(-1)
"""
BASELINE = "def launch(module, x):\n    return x.mean(-1)\n"
LOOP = """def launch(module, x):
    x = x.{type}()
    total = x[:, 0].clone()
    for column in x.unbind(1)[1:]:
        total += column
    return total.float() / x.shape[1]
"""


@pytest.mark.parametrize(("kind", "passes"), [("float", True), ("half", False), ("bfloat16", False)])
def test_a_loop_may_be_as_far_off_as_its_partial_sums_are_large_and_less_precision_may_not(kind, passes):
    trial = Trial(MEANS)
    key = trial.draw("sorted")
    trial.baseline(BASELINE, trial.draw(), key)
    found = Version(trial, LOOP.format(type=kind)).judge(key)
    assert right(found) is passes
    assert found.distances[0].max > 128, "the floor that all coarse families have"
