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
    said = re.search(r"([\d,]+) MHz at (\d+) W of (\d+) W, ([\d,]+) MHz in short runs", check.detail)
    if run is None:  # its clock fell by less than it gains
        assert said is not None
        assert 0.5 * float(said[3]) < float(said[2]) < 1.3 * float(said[3]), "for a tenth of a second it may draw more"
        return
    assert run.seconds > 0.45
    for watts, millijoules, us in (
        (run.baseline_w, run.baseline_mj, run.baseline_us),
        (run.candidate_w, run.candidate_mj, run.candidate_us),
    ):
        assert watts is not None
        assert run.limit_w is not None
        assert 0.5 * run.limit_w < watts < 1.1 * run.limit_w
        assert millijoules == pytest.approx(watts * us / 1e3)


def test_a_kernel_far_from_the_limit_keeps_its_clock(judges: Judges, scale: Path):
    verdict = judges.judge(scale, spinning.KERNEL.replace(*spinning.rounds(150)))
    print(verdict.verdict, steady(verdict), verdict.evidence.sustained)
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    check = steady(verdict)
    assert check is not None
    assert verdict.evidence.sustained is None
    assert "its clock held" in check.detail
