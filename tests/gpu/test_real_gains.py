"""What is faster is called faster, with evidence of it; what is slower, slower."""

from pathlib import Path

import pytest
import spinning
from judges import EXAMPLES, Judges, edited

from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.measure.statistics import CONFIRMATION_BLOCKS
from kernel_lsp.judge.verdict import CheckStatus, Outcome, Stage, Verdict

pytestmark = pytest.mark.gpu

BIAS_GELU = EXAMPLES / "cuda" / "bias_gelu.cu"
SCALAR = BIAS_GELU.read_text()
SCALAR_BODY = SCALAR[SCALAR.index("    int i = blockIdx.x") : SCALAR.rindex("}")]
EIGHT_AT_ONCE = """    int i = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    int c = i % cols;
    if (i + 8 <= n) {
        uint4 in = *reinterpret_cast<const uint4*>(x + i);
        uint4 out;
        const __half* from = reinterpret_cast<const __half*>(&in);
        __half* to = reinterpret_cast<__half*>(&out);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            to[k] = __float2half(gelu(__half2float(from[k]) + __half2float(bias[c])));
            c = c + 1 == cols ? 0 : c + 1;
        }
        *reinterpret_cast<uint4*>(y + i) = out;
    } else {
        for (; i < n; ++i) {
            y[i] = __float2half(gelu(__half2float(x[i]) + __half2float(bias[i % cols])));
        }
    }
"""


@pytest.fixture(scope="module")
def halved(judges: Judges, scale: Path) -> Verdict:
    return judges.judge(scale, edited(spinning.KERNEL, spinning.rounds(100)))


def test_half_the_work_is_faster(halved: Verdict) -> None:
    assert (halved.verdict, halved.stage) == (Outcome.FASTER, Stage.TIMED), halved.reason
    assert halved.speedup is not None
    assert halved.interval is not None
    assert 1.4 < halved.interval[0] <= halved.speedup <= halved.interval[1] < 2.2
    assert halved.reason.startswith(f"{halved.speedup:.3f}x faster")


def test_more_work_is_slower(judges: Judges, scale: Path) -> None:
    verdict = judges.judge(scale, edited(spinning.KERNEL, spinning.rounds(300)))
    assert (verdict.verdict, verdict.stage) == (Outcome.SLOWER, Stage.TIMED), verdict.reason
    assert verdict.interval is not None
    assert verdict.interval[1] < 0.9


def test_eight_elements_a_thread_are_faster_than_one(judges: Judges) -> None:
    workload = BIAS_GELU.with_name("bias_gelu_workload.py").read_text()
    launch = edited(workload, ("((n + block - 1) // block,)", "((n + 8 * block - 1) // (8 * block),)"))
    verdict = judges.judge(BIAS_GELU, edited(SCALAR, (SCALAR_BODY, EIGHT_AT_ONCE)), launch)
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    assert verdict.interval is not None
    assert verdict.interval[0] > 1
    assert verdict.evidence.sources["candidate_launch"] == launch


def test_the_evidence_is_complete(judges: Judges, halved: Verdict, scale: Path, gpu: Gpu) -> None:
    evidence = halved.evidence
    measured = judges.session(scale).measured
    assert measured is not None
    assert [case.case for case in halved.cases] == [measured.bench.cases[timed.draw.case] for timed in measured.cases]
    assert (halved.cases[-1].case, halved.cases[-1].bytes_moved) == ("n=1048576", 8 << 20)
    for case in halved.cases:
        assert case.confirmation_blocks == CONFIRMATION_BLOCKS
        assert len(case.blocks) > CONFIRMATION_BLOCKS
        assert case.baseline_us > case.candidate_us > 0
    assert evidence.device is not None
    assert (evidence.device.uuid, evidence.device.driver, evidence.device.arch) == (gpu.uuid, gpu.driver, gpu.arch)
    assert evidence.device.sm_clock_mhz is not None
    assert 100 < evidence.device.sm_clock_mhz[0] <= evidence.device.sm_clock_mhz[1] < 5000
    assert evidence.device.copy_bandwidth_gbs is not None
    assert evidence.device.read_bandwidth_gbs is not None
    assert evidence.device.read_bandwidth_gbs >= evidence.device.copy_bandwidth_gbs
    for (kernel,) in (evidence.baseline_resources, evidence.candidate_resources):
        assert (kernel.name, kernel.threads) == ("scale", 256)
        assert kernel.registers > 0
        assert kernel.occupancy is not None
    assert {"kernel-lsp", "torch", "driver"} <= evidence.versions.keys()
    assert evidence.sources["baseline"] == spinning.KERNEL
    assert evidence.sources["workload"] == spinning.WORKLOAD
    assert "ROUNDS = 100" in evidence.sources["candidate"]
    assert {e.family for e in evidence.errors} >= {"normal", "large", "tiny", "unaligned"}
    assert not [check for check in evidence.checks if check.status is CheckStatus.FAILED]
    passed = {check.name for check in evidence.checks if check.status is CheckStatus.PASSED}
    assert {"inputs: normal", "inputs: unaligned", "determinism", "new values at the same addresses"} <= passed
    assert halved.seconds.keys() >= {"parse", "build", "load", "correct", "record", "time", "confirm", "total"}


def test_a_verdict_survives_json(halved: Verdict) -> None:
    assert Verdict.model_validate_json(halved.model_dump_json()) == halved


def test_the_same_question_has_the_same_name(judges: Judges, halved: Verdict, scale: Path) -> None:
    again = judges.judge(scale, edited(spinning.KERNEL, spinning.rounds(100)))
    assert again.id == halved.id
    assert again.verdict is Outcome.FASTER
