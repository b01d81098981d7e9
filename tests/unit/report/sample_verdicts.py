"""Verdicts as the judge would make them, for tests of what is shown."""

from kernel_lsp.judge.timing import CaseTiming, SustainedRun
from kernel_lsp.judge.verdict import (
    Check,
    CheckStatus,
    DeviceState,
    ErrorFigures,
    Evidence,
    KernelResources,
    Mismatch,
    Outcome,
    Stage,
    Verdict,
)


def case(name: str, **changes) -> CaseTiming:
    given = {
        "case": name,
        "mode": "cold",
        "launches": 8,
        "baseline_us": 41.2,
        "candidate_us": 29.04,
        "speedup": 1.419,
        "interval": (1.401, 1.438),
        "bytes_moved": 134_225_920,
        "baseline_roofline_share": 0.61,
        "roofline_share": 0.88,
        "blocks": (-0.35,) * 22,
        "confirmation_blocks": 10,
        "memories": 16,
    }
    return CaseTiming(**given | changes)


def resources(**changes) -> KernelResources:
    given = {
        "name": "rmsnorm_kernel<float, 128>",
        "registers": 40,
        "shared_bytes": 528,
        "spill_bytes": 0,
        "stack_bytes": 0,
        "threads": 128,
        "occupancy": 0.75,
        "limiter": "registers",
    }
    return KernelResources(**given | changes)


def evidence(**changes) -> Evidence:
    given = {
        "created": "2026-01-02T03:04:05Z",
        "baseline_digest": "b" * 64,
        "candidate_digest": "c" * 64,
        "candidate_label": "BLOCK 128 -> 256",
        "candidate_origin": "tuner",
        "kernel_path": "kernels/rmsnorm.cu",
        "workload_path": "kernels/rmsnorm_workload.py",
        "sources": {"kernels/rmsnorm.cu": "__global__ void rmsnorm_kernel() {}"},
        "seed": 8675309,
        "checks": (
            Check(name="against the reference", status=CheckStatus.PASSED, case="rows=4096 cols=4096"),
            Check(name="against the reference", status=CheckStatus.PASSED, case="rows=128 cols=8191"),
            Check(name="deterministic", status=CheckStatus.PASSED),
            Check(name="guard regions", status=CheckStatus.PASSED),
            Check(name="sanitizer", status=CheckStatus.SKIPPED, detail="compute-sanitizer is not installed"),
        ),
        "errors": (
            ErrorFigures(
                case="rows=4096 cols=4096",
                family="normal",
                baseline_max=1.51,
                baseline_rms=0.24,
                candidate_max=1.49,
                candidate_rms=0.24,
            ),
            ErrorFigures(
                case="rows=4096 cols=4096",
                family="outliers",
                baseline_max=2.0,
                baseline_rms=0.3,
                candidate_max=2.5,
                candidate_rms=0.31,
            ),
        ),
        "mismatch": None,
        "baseline_resources": (resources(),),
        "candidate_resources": (
            resources(name="rmsnorm_kernel<float, 256>", registers=32, threads=256, occupancy=1.0),
        ),
        "device": DeviceState(
            name="NVIDIA H200",
            uuid="GPU-0",
            arch="sm_90",
            driver="580.95",
            sm_clock_mhz=(1978.0, 1980.0),
            power_w=412.4,
            temperature_c=51,
            copy_bandwidth_gbs=4312.0,
            read_bandwidth_gbs=4487.0,
        ),
        "versions": {"driver": "580.95", "torch": "2.13.0", "nvrtc": "13.0"},
        "build_way": "nvrtc",
        "build_log": "",
        "settings": {"delta": 0.01, "alpha": 0.05},
        "discarded_blocks": 1,
        "protections": ("limits", "files", "network"),
        "command": "kernel-lsp judge kernels/rmsnorm.cu candidate.cu --workload kernels/rmsnorm_workload.py",
    }
    return Evidence(**given | changes)


def steady() -> SustainedRun:
    return SustainedRun(
        case="n=1",
        seconds=2.0,
        baseline_us=100.0,
        candidate_us=80.0,
        speedup=1.25,
        interval=(1.24, 1.26),
        baseline_mj=60.0,
        candidate_mj=55.0,
        baseline_w=600.0,
        candidate_w=690.0,
        limit_w=700.0,
        baseline_clock_mhz=1900.0,
        candidate_clock_mhz=1700.0,
        throttle=("power cap",),
    )


def faster(**changes) -> Verdict:
    given = {
        "id": "3f9a2c1e" + "0" * 56,
        "verdict": Outcome.FASTER,
        "stage": Stage.TIMED,
        "reason": "Faster in both cases and every check passed.",
        "cases": (
            case("rows=4096 cols=4096"),
            case("rows=128 cols=8191", baseline_us=3.31, candidate_us=3.02, speedup=1.096, interval=(1.081, 1.112)),
        ),
        "speedup": 1.247,
        "interval": (1.231, 1.262),
        "seconds": {"build": 0.041, "run": 0.12, "correct": 0.31, "timed": 0.45, "total": 0.93},
        "evidence": evidence(),
    }
    return Verdict(**given | changes)


def wrong() -> Verdict:
    mismatch = Mismatch(
        case="rows=128 cols=8191",
        family="normal",
        output=0,
        index=(3, 8190),
        expected="0.4375",
        actual="nan",
        count=128,
        total=1_048_448,
    )
    failed = Check(name="against the reference", status=CheckStatus.FAILED, case=mismatch.case, detail="input normal")
    return faster(
        verdict=Outcome.WRONG,
        stage=Stage.CORRECT,
        reason="Output 0 differs from the reference at [3, 8190] in case rows=128 cols=8191.",
        cases=(),
        speedup=None,
        interval=None,
        evidence=evidence(mismatch=mismatch, checks=(failed,), errors=(), discarded_blocks=0),
    )


def build_failed() -> Verdict:
    log = "\n".join(f"kernels/rmsnorm.cu({n}): error: identifier 'x{n}' is undefined" for n in range(1, 41))
    return faster(
        verdict=Outcome.BUILD_FAILED,
        stage=Stage.BUILD,
        reason="It does not compile: identifier 'x1' is undefined (line 1).",
        cases=(),
        speedup=None,
        interval=None,
        evidence=evidence(
            checks=(), errors=(), candidate_resources=(), device=None, build_log=log, seed=None, discarded_blocks=0
        ),
    )
