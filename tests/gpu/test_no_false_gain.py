"""The same kernel under another text is never called faster."""

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
