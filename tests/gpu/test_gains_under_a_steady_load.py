"""A gain in a kernel that draws much power is held against seconds of steady load; one that draws little is not."""

import re
from pathlib import Path

import pytest
import spinning
from judges import EXAMPLES, Judges

from kernel_lsp.judge.verdict import CheckStatus, Outcome, Verdict

pytestmark = pytest.mark.gpu

SMALL_TILES = 'configs=[triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_warps=4)],'


def steady(verdict: Verdict):
    return next((check for check in verdict.evidence.checks if check.name == "steady load"), None)


def test_energy_of_a_gain_at_the_power_limit(judges: Judges, tmp_path: Path):
    original = (EXAMPLES / "triton" / "matmul.py").read_text()
    path = tmp_path / "matmul.py"
    path.write_text(re.sub(r"configs=\[.*?\n    \],", SMALL_TILES, original, flags=re.DOTALL))
    workload = (EXAMPLES / "triton" / "matmul_workload.py").read_text()
    path.with_name("matmul_workload.py").write_text(workload)
    verdict = judges.judge(path, original)
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    check, run = steady(verdict), verdict.evidence.sustained
    print(check, run)
    assert check is not None
    assert check.status is CheckStatus.PASSED, check.detail
    assert run is not None
    assert run.seconds > 0.9
    assert run.speedup > 1.05
    assert run.baseline_mj is not None
    assert run.candidate_mj is not None
    assert 0.5 * run.limit_w < run.baseline_mj / run.baseline_us * 1e3 < 1.1 * run.limit_w
    assert run.candidate_mj < run.baseline_mj


def test_a_kernel_far_from_the_limit_is_spared(judges: Judges, scale: Path):
    verdict = judges.judge(scale, spinning.KERNEL.replace(*spinning.rounds(150)))
    print(verdict.verdict, steady(verdict), verdict.evidence.sustained)
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    check = steady(verdict)
    assert check is not None
    assert (verdict.evidence.sustained is None) == (check.status is CheckStatus.SKIPPED)
