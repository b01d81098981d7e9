"""KernelBench problems on a GPU: the model against itself, right answers, weights, sizes that the memory holds."""

import pytest
from judges import Judges

from kernel_lsp.judge.verdict import CheckStatus, Outcome, Stage

pytestmark = pytest.mark.gpu

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return torch.relu(self.norm(x)) * 2 + 1


batch, features = 8192, 2048


def get_inputs():
    return [torch.rand(batch, features)]


def get_init_inputs():
    return [features]
"""
TRITON = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, weight, bias, y, size, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * size + at, mask=at < size, other=0.0)
    mean = tl.sum(value) / size
    off = tl.where(at < size, value - mean, 0.0)
    scaled = off * tl.rsqrt(tl.sum(off * off) / size + 1e-5)
    scaled = scaled * tl.load(weight + at, mask=at < size) + tl.load(bias + at, mask=at < size)
    tl.store(y + row * size + at, tl.maximum(scaled, 0.0) * 2 + 1, mask=at < size)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        y = torch.empty_like(x)
        norm_kernel[(x.size(0),)](x, self.norm.weight, self.norm.bias, y, x.size(1), BLOCK=2048)
        return y
"""


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernelbench") / "norm.py"
    path.write_text(PROBLEM)
    return path


def test_the_model_again_is_never_faster(judges: Judges, problem) -> None:
    again = PROBLEM.replace("Model", "ModelNew").replace("* 2 + 1", "* 2.0 + 1")
    verdict = judges.judge(problem, again)
    assert verdict.stage is Stage.TIMED, verdict.reason
    assert verdict.verdict is not Outcome.FASTER, verdict.reason


def test_a_kernel_for_the_whole_model_is_right_and_its_own(judges: Judges, problem) -> None:
    verdict = judges.judge(problem, TRITON)
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    checks = {check.name: check for check in verdict.evidence.checks}
    assert checks["weights"].status is CheckStatus.PASSED
    assert checks["inputs: weights"].status is CheckStatus.PASSED
    assert all(trace.own_share == 1 for trace in verdict.evidence.traces)


def test_weights_that_are_ignored_are_found(judges: Judges, problem) -> None:
    verdict = judges.judge(problem, TRITON.replace("* tl.load(weight + at, mask=at < size)", ""))
    assert verdict.verdict is Outcome.WRONG
    assert "weight" in verdict.reason


def test_kernels_for_show_are_refused(judges: Judges, problem) -> None:
    shown = TRITON.replace("        return y", "        return torch.relu(self.norm(x)) * 2 + 1 if x.is_cuda else y")
    hidden = shown.replace("        norm_kernel[", "        if x.size(0) == 7:\n            norm_kernel[")
    verdict = judges.judge(problem, hidden)
    assert verdict.verdict in (Outcome.BUILD_FAILED, Outcome.ILLEGITIMATE), verdict.reason
