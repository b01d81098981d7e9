"""Events of a bench as JSON lines, each written when it happens: for what watches a bench from outside."""

import json
from collections.abc import Callable
from itertools import islice

from kernel_lsp.bench.records import CandidateResult
from kernel_lsp.bench.run import BenchProgress


class BenchEvents:
    """Tells what has changed between two states of a bench; `write` takes each line.

    Each line is an object with `event` and `seconds` since the bench began. Events are `lane` (a lane does something
    else), `verdict` (a candidate was judged, with how far the bench is) and `trouble` (one could not be judged).
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._doing: dict[str, str] = {}
        self._results: int | None = None  # told; later ones are behind them
        self._troubles = 0  # likewise

    def __call__(self, progress: BenchProgress) -> None:
        """Tell what has changed since the last call; results that are there at the first one are no news."""
        if self._results is None:
            self._results = len(progress.results)
        for lane, doing in progress.doing.items():
            if self._doing.get(lane) != doing:
                self._doing[lane] = doing
                self._tell(progress, "lane", lane=lane, doing=doing)
        for result in islice(progress.results.values(), self._results, None):
            self._tell(progress, "verdict", **_verdict(result), **_far(progress))
        for candidate, reason in islice(progress.troubles.items(), self._troubles, None):
            self._tell(progress, "trouble", candidate=candidate, reason=reason)
        self._results, self._troubles = len(progress.results), len(progress.troubles)

    def _tell(self, progress: BenchProgress, event: str, **about: object) -> None:
        line = {"event": event, "seconds": round(progress.seconds, 2)} | about
        self._write(json.dumps(line, ensure_ascii=False) + "\n")


def _verdict(result: CandidateResult) -> dict[str, object]:
    return {
        "level": result.level,
        "problem": result.problem,
        "run": result.run,
        "sample": result.index,
        "verdict": result.eager.verdict.value,
        "reason": result.eager.reason,
        "speedup": result.eager.speedup,
        "interval": result.eager.interval,
        "evidence": result.verdict,
        "lane": result.where.lane if result.where else None,
        "gpu": result.where.gpu if result.where else None,
    }


def _far(progress: BenchProgress) -> dict[str, object]:
    return {
        "done": len(progress.results),
        "of": len(progress.plan.jobs),
        "a_minute": round(60 * progress.judged / progress.seconds, 2) if progress.seconds else None,
    }
