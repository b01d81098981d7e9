"""Results of a bench for tests."""

from kernel_lsp.bench.records import CandidateResult, Comparison, Published
from kernel_lsp.judge.verdict import Outcome, Stage


def comparison(outcome: Outcome = Outcome.FASTER, speedup: float | None = 1.5, stage: Stage = Stage.TIMED):
    interval = None if speedup is None else (speedup * 0.98, speedup * 1.02)
    return Comparison(verdict=outcome, stage=stage, reason="a reason", speedup=speedup, interval=interval)


def published(correct: bool = True, mean_ms: float | None = 1.0, reference_ms: float | None = 2.0) -> Published:
    return Published(
        compiled=True,
        correct=correct,
        trials=(5 if correct else 0, 5),
        detail="" if correct else "trial 1: an element is off",
        mean_ms=mean_ms,
        reference_ms=reference_ms,
        excessive=False,
        scaled=False,
        seconds=3.0,
    )


def result(key: str = "k", **changes) -> CandidateResult:
    given = {
        "key": key,
        "level": 1,
        "number": 19,
        "problem": "19_ReLU",
        "run": "",
        "index": 0,
        "language": "torch",
        "verdict": "0123456789",
        "eager": comparison(),
        "compiled": None,
        "compiled_trouble": "",
        "cheat": None,
        "build_way": "fast",
        "seconds": {"build": 0.5, "total": 1.0},
        "gpu": "NVIDIA H200",
        "published": None,
        "published_trouble": "",
    }
    return CandidateResult.model_validate(given | changes)


def wrong(key: str, **changes) -> CandidateResult:
    return result(key, eager=comparison(Outcome.WRONG, None, Stage.CORRECT), **changes)
