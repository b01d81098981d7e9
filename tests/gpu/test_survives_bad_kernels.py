"""Kernels that hang, crash or do not start: each gets its verdict, and the next kernel is judged as if nothing was."""

from pathlib import Path

import pytest
import spinning
from judges import EXAMPLES, Judges, edited

from kernel_lsp.judge.verdict import Outcome, Stage, Verdict

pytestmark = pytest.mark.gpu

SOFTMAX = EXAMPLES / "triton" / "softmax.py"
ON_A_GPU_ONLY = 'if hasattr(torch.cuda.get_device_properties(0), "uuid"):\n    '  # not that of builds

VECTOR_READ = """if (i % 4 == 0 && i + 3 < n) {
        float4 four = *reinterpret_cast<const float4*>(x + i);
        y[i] = 2.0f * four.x;
        y[i + 1] = 2.0f * four.y;
        y[i + 2] = 2.0f * four.z;
        y[i + 3] = 2.0f * four.w;
    } else if (i / 4 * 4 + 3 >= n) {
        y[i] = 2.0f * x[i];
    }"""
CRASHES = {
    "reads far away": ("x[i]", "x[(1ll << 40) + i]", "illegal memory access"),
    "writes far away": ("y[i] =", "y[(1ll << 40) + i] =", "illegal memory access"),
    "traps": ("y[i] =", 'if (i == 7) asm volatile("trap;");\n    y[i] =', "CUDA error"),
    "reads a misaligned vector": (
        spinning.BODY,
        VECTOR_READ,
        "misaligned address",
    ),
}
ENDS = {
    "an exception at import": ('raise RuntimeError("no luck")', "no luck"),
    "exit at import": ("raise SystemExit(0)", "SystemExit"),
}
LAUNCHES = {
    "too many threads": ("256](x", "2048](x", "CUDA_ERROR_INVALID_VALUE"),
    "too much shared memory": ("256](x", "256, 1 << 20](x", "CUDA_ERROR_INVALID_VALUE"),
}


def assert_good_one_is_judged(judges: Judges, path: Path, comment: str, what: str) -> None:
    after = judges.judge(path, f"{path.read_text()}\n{comment} after: {what}\n")
    assert after.stage is Stage.TIMED, after.reason
    assert after.verdict in {Outcome.SAME, Outcome.NOT_WORTH_IT, Outcome.AMBIGUOUS}, after.reason


def test_a_hanging_kernel_is_stopped_in_time(judges: Judges, scale: Path) -> None:
    text = edited(spinning.KERNEL, (spinning.BODY, f'while (n > 0) {{ asm volatile(""); }}\n    {spinning.BODY}'))
    verdict = judges.judge(scale, text)
    assert (verdict.verdict, verdict.stage) == (Outcome.TIMED_OUT, Stage.RUN), verdict.reason
    assert "did not finish running on case n=1000" in verdict.reason
    assert verdict.seconds["total"] < judges.settings.runner.deadline_floor_s + 10
    assert_good_one_is_judged(judges, scale, "//", "hang")


@pytest.mark.parametrize("what", CRASHES)
def test_a_kernel_that(judges: Judges, scale: Path, what: str) -> None:
    old, new, words = CRASHES[what]
    verdict = judges.judge(scale, edited(spinning.KERNEL, (old, new)))
    assert (verdict.verdict, verdict.stage) == (Outcome.RUN_FAILED, Stage.RUN), verdict.reason
    assert "on case n=1000" in verdict.reason
    assert words in verdict.reason
    assert_good_one_is_judged(judges, scale, "//", what)


@pytest.mark.parametrize("what", ENDS)
def test_a_module_with(judges: Judges, what: str) -> None:
    statement, words = ENDS[what]
    module = SOFTMAX.read_text()
    verdict = judges.judge(SOFTMAX, f"{module}\n{ON_A_GPU_ONLY}{statement}\n")
    assert (verdict.verdict, verdict.stage) == (Outcome.RUN_FAILED, Stage.RUN), verdict.reason
    assert words in verdict.reason
    built = judges.judge(SOFTMAX, f"{module}\n{statement}\n")
    assert (built.verdict, built.stage) == (Outcome.BUILD_FAILED, Stage.BUILD), built.reason


def test_a_launch_that_ends_the_process(judges: Judges) -> None:
    text = edited(SOFTMAX.read_text(), ("    return y\n", "    leave_on_a_gpu()\n    return y\n"))
    verdict = judges.judge(
        SOFTMAX,
        f"{text}\n\ndef leave_on_a_gpu():\n    {ON_A_GPU_ONLY.replace(chr(10), chr(10) + '    ')}raise SystemExit(0)\n",
    )
    assert (verdict.verdict, verdict.stage) == (Outcome.RUN_FAILED, Stage.RUN), verdict.reason
    assert "process died running on case" in verdict.reason
    assert_good_one_is_judged(judges, SOFTMAX, "#", "exit")


@pytest.mark.parametrize("what", LAUNCHES)
def test_a_launch_with(judges: Judges, scale: Path, what: str) -> None:
    old, new, words = LAUNCHES[what]
    verdict = judges.judge(scale, spinning.KERNEL, edited(spinning.WORKLOAD, (old, new)))
    assert (verdict.verdict, verdict.stage) == (Outcome.RUN_FAILED, Stage.RUN), verdict.reason
    assert words in verdict.reason


def test_a_compile_error_is_at_the_users_line(judges: Judges, scale: Path) -> None:
    verdict: Verdict = judges.judge(scale, edited(spinning.KERNEL, ("2.0f * x[i]", "two * x[i]")))
    line = spinning.KERNEL[: spinning.KERNEL.index("2.0f * x[i]")].count("\n") + 1
    assert (verdict.verdict, verdict.stage) == (Outcome.BUILD_FAILED, Stage.BUILD)
    assert verdict.reason == f'scale.cu:{line}: identifier "two" is undefined'


def test_a_triton_compile_error_is_at_the_users_line(judges: Judges) -> None:
    module = SOFTMAX.read_text()
    verdict = judges.judge(SOFTMAX, edited(module, ("tl.exp(x", "tl.expo(x")))
    line = module[: module.index("tl.exp(x")].count("\n") + 1
    assert (verdict.verdict, verdict.stage) == (Outcome.BUILD_FAILED, Stage.BUILD)
    assert verdict.reason.startswith(f"softmax.py:{line}: ")
