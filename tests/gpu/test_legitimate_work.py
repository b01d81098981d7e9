"""What computes the answer must be the version's own kernels, in order, and leave everything round it alone."""

import pytest
import spinning
from judges import EXAMPLES, Judges, edited

from kernel_lsp.judge.verdict import CheckStatus, Outcome, Stage

pytestmark = pytest.mark.gpu

SOFTMAX = EXAMPLES / "triton" / "softmax.py"
CALL = "softmax_kernel[(rows,)](x, y, x.stride(0), y.stride(0), cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)"
LAUNCH = f"    {CALL}\n"
ONE_ROW = LAUNCH.replace("(rows,)", "(1,)")
INDENTED = f"    {LAUNCH}"
SIDE = "    side, main = torch.cuda.Stream(), torch.cuda.current_stream()\n"
WAIT, JOIN = "    side.wait_stream(main)\n", "    main.wait_stream(side)\n"
ON_SIDE = f"    with torch.cuda.stream(side):\n{INDENTED}"
THREAD = "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"

CHEATS = {
    "a library in place of the kernel": ("    y = torch.softmax(x, dim=-1)\n", "none of its own kernels ran"),
    "a fig leaf beside a library": (f"    y = torch.softmax(x, dim=-1)\n{ONE_ROW}", "which is not its own"),
    "work on a stream that waits for nothing": (SIDE + ON_SIDE, "works on another stream without waiting"),
    "work that nothing waits for": (SIDE + WAIT + ON_SIDE, "returns before its work is done"),
    "a thread left running": (LAUNCH + THREAD, "leaves a thread running"),
    "precision turned down": (
        f"{LAUNCH}    torch.backends.cuda.matmul.allow_tf32 = True\n",
        "changes torch.backends.cuda.matmul.allow_tf32",
    ),
    "a clock replaced": (
        f"{LAUNCH}    torch.cuda.Event.elapsed_time = lambda *_: 0.001\n",
        "changes torch.cuda.Event.elapsed_time",
    ),
    "random numbers drawn": (f"{LAUNCH}    torch.rand(4, device='cuda')\n", "random numbers on the GPU"),
}
HONEST = {
    "memory set to zero first": f"    y.zero_()\n{LAUNCH}",
    "two streams, joined": SIDE + WAIT + ON_SIDE + JOIN,
    "a small copy beside": f"{LAUNCH}    x[:1].clone()\n",
    "a thread that has ended": f"{LAUNCH}    t = threading.Thread(target=int)\n    t.start()\n    t.join()\n",
}


def softmax(body: str) -> str:
    return edited(
        SOFTMAX.read_text(), (LAUNCH, body), ("import torch\n", "import threading\nimport time\n\nimport torch\n")
    )


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_is_not_legitimate(judges: Judges, cheat: str) -> None:
    body, words = CHEATS[cheat]
    verdict = judges.judge(SOFTMAX, softmax(body))
    assert (verdict.verdict, verdict.stage) == (Outcome.ILLEGITIMATE, Stage.LEGITIMATE), verdict.reason
    assert words in verdict.reason


@pytest.mark.parametrize("twin", HONEST)
def test_what_is(judges: Judges, twin: str) -> None:
    verdict = judges.judge(SOFTMAX, softmax(HONEST[twin]))
    assert verdict.stage is Stage.TIMED, verdict.reason
    statuses = {check.name: check.status for check in verdict.evidence.checks}
    assert statuses["its own kernels do the work"] is CheckStatus.PASSED
    assert statuses["no work on other streams is left behind"] is CheckStatus.PASSED
    assert all(trace.own_share is not None and trace.own_share > 0.8 for trace in verdict.evidence.traces)


def test_a_launch_that_leaves_the_kernel_out(judges: Judges, scale) -> None:
    launch = edited(spinning.WORKLOAD, (spinning.LAUNCH, "torch.mul(x, 2, out=y)"))
    verdict = judges.judge(scale, spinning.KERNEL, launch)
    assert (verdict.verdict, verdict.stage) == (Outcome.ILLEGITIMATE, Stage.LEGITIMATE), verdict.reason
    assert "none of its own kernels ran" in verdict.reason


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
