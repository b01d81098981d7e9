"""What computes the answer is seen in a trace: own kernels, in order, for as long as they are said to run."""

import pytest
import spinning
from judges import EXAMPLES, Judges, edited

from kernel_lsp.judge.verdict import CheckStatus, Outcome, Stage

pytestmark = pytest.mark.gpu

SOFTMAX = EXAMPLES / "triton" / "softmax.py"
CALL = "softmax_kernel[(rows,)](x, y, x.stride(0), y.stride(0), cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)"
LAUNCH = f"    {CALL}\n"
INDENTED = f"    {LAUNCH}"
SIDE = "    side, main = torch.cuda.Stream(), torch.cuda.current_stream()\n"
WAIT, JOIN = "    side.wait_stream(main)\n", "    main.wait_stream(side)\n"
HONEST = {
    "memory set to zero first": f"    y.zero_()\n{LAUNCH}",
    "two streams, joined": f"{SIDE}{WAIT}    with torch.cuda.stream(side):\n{INDENTED}{JOIN}",
    "a small copy beside": f"{LAUNCH}    x[:1].clone()\n",
}


@pytest.mark.parametrize("twin", HONEST)
def test_what_is(judges: Judges, twin: str) -> None:
    verdict = judges.judge(SOFTMAX, edited(SOFTMAX.read_text(), (LAUNCH, HONEST[twin])))
    assert verdict.stage is Stage.TIMED, verdict.reason
    statuses = {check.name: check.status for check in verdict.evidence.checks}
    assert statuses["its own kernels do the work"] is CheckStatus.PASSED
    assert statuses["no work on other streams is left behind"] is CheckStatus.PASSED
    longest = max(verdict.evidence.traces, key=lambda trace: trace.span_us)
    assert longest.own_share is not None
    assert longest.own_share > 0.8, longest  # beside a short launch, a small copy is a third of all that computes


def test_a_gain_shows_what_was_timed(judges: Judges, scale) -> None:
    verdict = judges.judge(scale, edited(spinning.KERNEL, spinning.rounds(150)))
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    assert {"what was timed is what was launched"} <= {
        check.name for check in verdict.evidence.checks if check.status is CheckStatus.PASSED
    }
    timed = [trace for trace in verdict.evidence.traces if trace.timed]
    assert [trace.case for trace in timed] == [case.case for case in verdict.cases]
    for trace in timed:
        assert trace.own_share == 1.0
        assert trace.claimed_us is not None
        own = sum(group.us for group in trace.groups if group.own) / trace.launches
        assert own == pytest.approx(trace.claimed_us, rel=0.3, abs=4.0)


def test_a_kernel_that_never_runs_is_named(judges: Judges, scale) -> None:
    text = edited(spinning.KERNEL, spinning.rounds(150))
    verdict = judges.judge(scale, f'{text}\nextern "C" __global__ void decoy(float* y) {{ y[0] = 1.0f; }}\n')
    assert {name for trace in verdict.evidence.traces for name in trace.never_launched} == {"decoy"}
