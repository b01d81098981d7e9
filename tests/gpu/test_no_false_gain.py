"""The same kernel under another text is never called faster."""

from pathlib import Path

import pytest
from judges import EXAMPLES, Judges

from kernel_lsp.judge.verdict import Outcome, Stage

pytestmark = pytest.mark.gpu

NO_DIFFERENCE = {Outcome.SAME, Outcome.NOT_WORTH_IT, Outcome.AMBIGUOUS}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    ("name", "comment"), [("cuda/rmsnorm.cu", "//"), ("triton/softmax.py", "#"), ("cuda/rotary.cu", "//")]
)
def test_a_kernel_is_not_faster_than_itself(judges: Judges, name: str, comment: str, number: int) -> None:
    path = EXAMPLES / name
    verdict = judges.judge(path, f"{path.read_text()}\n{comment} the same again, number {number}\n")
    assert verdict.verdict in NO_DIFFERENCE, verdict.reason
    assert verdict.stage is Stage.TIMED
    assert verdict.interval is not None
    assert verdict.interval[0] <= 1.01


COUNTING = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + row, tl.sum(total))


def mean_of_rows(x, wanted):
    count = wanted.sum().item()  # waits for the GPU
    sums = torch.empty(x.shape[0], device=x.device)
    kernel[(x.shape[0],)](x, sums, x.shape[1], BLOCK=1024)
    return (sums * wanted).sum() / count
"""
WORKLOAD = """
import torch

CASES = [dict(rows=6, columns=1000), dict(rows=1024, columns=32000)]
CONTRACT = dict(contiguous=True)


def inputs(rows, columns):
    wanted = torch.rand(rows, device="cuda") < 0.9
    wanted[0] = True
    return torch.randn(rows, columns, device="cuda"), wanted


def reference(x, wanted):
    return x[wanted].sum() / wanted.sum()


def launch(module, x, wanted):
    return module.mean_of_rows(x, wanted)
"""


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel file whose calls read a count back from the GPU."""
    path = tmp_path_factory.mktemp("counting") / "counting.py"
    path.write_text(COUNTING)
    path.with_name("counting_workload.py").write_text(WORKLOAD)
    return path


@pytest.mark.parametrize("number", range(4))
def test_nor_is_one_whose_calls_wait_for_the_gpu_and_it_is_not_slower(
    judges: Judges, counting: Path, number: int
) -> None:
    verdict = judges.judge(counting, f"{COUNTING}\n# the same again, number {number}\n")
    assert verdict.verdict in NO_DIFFERENCE, verdict.reason
    assert verdict.stage is Stage.TIMED
