"""Single accesses that outputs do not show: compute-sanitizer and the emulator look at what would be called faster."""

from pathlib import Path

import pytest
import spinning
from judges import EXAMPLES, Judges, edited

from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.judge.verdict import CheckStatus, Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_tool("compute-sanitizer") is None, reason="compute-sanitizer is not installed"),
]

NEAR_THE_LARGEST = 1  # size of a vector, on the GPU; the emulator runs two small ones
SOFTMAX = EXAMPLES / "triton" / "softmax.py"
USES = "if (extra == 12345.678f) return;"  # never, but no compiler knows
RACE = f"""__shared__ float near[256];
    near[threadIdx.x] = x[i];
    float extra = near[(threadIdx.x + 40) % 256];
    {USES}"""
HAZARDS = {
    "a read past the end": (f"float extra = x[i + 1];\n    {USES}", "memcheck", Outcome.RUN_FAILED, "x[i + 1]"),
    "a race": (RACE, "racecheck", Outcome.WRONG, "near[threadIdx.x] ="),
    "a read of its own unset output": (f"float extra = y[i];\n    {USES}", "initcheck", Outcome.WRONG, "= y[i];"),
    "a barrier that some threads miss": (
        "if (threadIdx.x < 40) __syncthreads();",
        "synccheck",
        Outcome.RUN_FAILED,
        "__syncthreads",
    ),
}


@pytest.mark.parametrize("hazard", HAZARDS)
def test_what_outputs_do_not_show(judges: Judges, scale: Path, hazard: str) -> None:
    added, tool, outcome, place = HAZARDS[hazard]
    text = edited(spinning.KERNEL, (spinning.BODY, f"{added}\n    {spinning.BODY}"))
    ruling, findings = judges.examine(scale, text)
    failed = {check.name: check.detail for check in findings.checks if check.status is CheckStatus.FAILED}
    assert ruling is not None, findings.checks
    assert f"compute-sanitizer {tool}" in failed, findings.checks
    assert ruling.outcome is outcome
    line = text[: text.index(place)].count("\n") + 1
    assert f"line {line}: " in failed[f"compute-sanitizer {tool}"]


def test_a_clean_kernel_passes_everything(judges: Judges, scale: Path) -> None:
    ruling, findings = judges.examine(scale, edited(spinning.KERNEL, spinning.rounds(150)))
    measured = judges.session(scale).measured
    assert ruling is None
    assert measured is not None
    assert sorted((check.name, check.status) for check in findings.checks) == sorted(
        [
            *(
                (f"compute-sanitizer {tool}", CheckStatus.PASSED)
                for tool in ("memcheck", "racecheck", "initcheck", "synccheck")
            ),
            ("emulator", CheckStatus.PASSED),
            *[("blocks of the timed launch on the emulator", CheckStatus.PASSED)] * len(measured.cases),
            *[("other sizes", CheckStatus.PASSED)] * (2 + NEAR_THE_LARGEST),
        ]
    )


def test_a_triton_kernel_that_reads_past_the_end(judges: Judges) -> None:
    masked = 'mask=mask, other=float("-inf"))'
    after = '    x = tl.where(mask, x, float("-inf"))'
    changed = edited(SOFTMAX.read_text(), (masked, f"{masked.replace('mask=mask', 'mask=cols <= n_cols')}\n{after}"))
    ruling, findings = judges.examine(SOFTMAX, changed)
    assert ruling is not None, findings.checks
    line = changed[: changed.index("x = tl.load(")].count("\n") + 1
    assert f"line {line}: invalid __global__ read of size" in ruling.reason
    assert ruling.reason.endswith("(memcheck)")


def test_a_clean_triton_kernel_passes(judges: Judges) -> None:
    ruling, findings = judges.examine(SOFTMAX, edited(SOFTMAX.read_text(), ("num_warps=4", "num_warps=8")))
    assert ruling is None, findings.checks
    assert [check for check in findings.checks if check.status is not CheckStatus.PASSED] == []
