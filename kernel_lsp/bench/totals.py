"""Adds up the results of a bench into one record.

fast_p is KernelBench's measure (Ouyang et al., arXiv 2502.10517, section 3.3; `fastp` in its `score.py`): the share of
all candidates that are correct and more than p times as fast as the baseline. p = 0 counts correct candidates.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from kernel_lsp.bench.records import CandidateResult
from kernel_lsp.judge.record import Record

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
FAST_WAY = "fast"


class Agreement(Record):
    """Our verdicts beside KernelBench's: number of candidates right by both, by neither, by one of them."""

    both: int
    neither: int
    only_ours: int
    only_published: int

    @property
    def compared(self) -> int:
        """Return the number of candidates that have both verdicts."""
        return self.both + self.neither + self.only_ours + self.only_published


class Totals(Record):
    """Sums over all results.

    Attributes:
        candidates: number of candidates.
        unanswered: problems whose search found no candidate; they count as not correct.
        correct: number of right candidates.
        outcomes: number of candidates by verdict.
        fast: fast_p against eager execution, by p; a share of all candidates and unanswered problems. None if right
            candidates are untimed.
        fast_compiled: the same against `torch.compile`.
        fast_published: the same by KernelBench's own method, its correctness and its times.
        cheats: number found of each kind.
        fast_builds: share of inline extensions that were built without torch's headers; None without any.
        agreement: None if KernelBench's method was not requested.
        per_minute: verdicts per minute of this run; None if it judged nothing.
        seconds: mean seconds of each stage, over the candidates that reached it.
    """

    candidates: int
    unanswered: int
    correct: int
    outcomes: dict[str, int]
    fast: dict[str, float | None]
    fast_compiled: dict[str, float | None]
    fast_published: dict[str, float | None]
    cheats: dict[str, int]
    fast_builds: float | None
    agreement: Agreement | None
    per_minute: float | None
    seconds: dict[str, float]

    @property
    def asked(self) -> int:
        """Return the number that shares refer to: candidates and unanswered problems."""
        return self.candidates + self.unanswered


def fast_p(ratios: Sequence[tuple[bool, float | None]], p: float) -> float | None:
    """Return the share of candidates that are correct and more than `p` times as fast as the baseline.

    Args:
        ratios: of each candidate, whether it is correct, and the baseline's time over its own where that is known.
        p: the threshold. Every correct candidate passes 0.

    Returns:
        The share, or None where it depends on times that are not known, or there is no candidate.
    """
    if not ratios:
        return None
    right = [ratio for correct, ratio in ratios if correct]
    if p == 0:
        return len(right) / len(ratios)
    if None in right:
        return None
    return sum(ratio > p for ratio in right if ratio is not None) / len(ratios)


def add_up(results: Sequence[CandidateResult], judged: int = 0, seconds: float = 0.0, unanswered: int = 0) -> Totals:
    """Return the totals of `results`.

    Args:
        results: one for each candidate.
        judged: how many of them were reached in this run.
        seconds: wall time that took.
        unanswered: problems that were searched for an answer and have none.
    """
    timed = results if any(r.compiled for r in results) else ()
    compared = [r for r in results if r.published is not None]
    inline = [r.build_way for r in results if r.build_way in (FAST_WAY, "full")]
    return Totals(
        candidates=len(results),
        unanswered=unanswered,
        correct=sum(r.eager.right for r in results),
        outcomes=dict(Counter(str(r.eager.verdict) for r in results).most_common()),
        fast=_fast(results, lambda r: (r.eager.right, r.eager.ratio), unanswered),
        fast_compiled=_fast(timed, _against_compiled, unanswered if timed else 0),
        fast_published=_fast(compared, _published, unanswered if compared else 0),
        cheats=dict(Counter(r.cheat for r in results if r.cheat).most_common()),
        fast_builds=sum(way == FAST_WAY for way in inline) / len(inline) if inline else None,
        agreement=_agreement(compared) if compared else None,
        per_minute=60 * judged / seconds if judged and seconds else None,
        seconds=_mean_seconds(results),
    )


def _fast(
    results: Sequence[CandidateResult], of: Callable[[CandidateResult], tuple[bool, float | None]], unanswered: int
) -> dict[str, float | None]:
    ratios = [*map(of, results), *[(False, None)] * unanswered]
    return {f"{p:g}": fast_p(ratios, p) for p in THRESHOLDS}


def _against_compiled(result: CandidateResult) -> tuple[bool, float | None]:
    return result.eager.right, result.compiled.ratio if result.compiled else None


def _published(result: CandidateResult) -> tuple[bool, float | None]:
    assert result.published is not None, "only those that have it are summed up"
    return result.published.correct, result.published.speedup


def _agreement(results: Sequence[CandidateResult]) -> Agreement:
    pairs = Counter((r.eager.right, r.published.correct) for r in results if r.published is not None)
    return Agreement(
        both=pairs[True, True],
        neither=pairs[False, False],
        only_ours=pairs[True, False],
        only_published=pairs[False, True],
    )


def _mean_seconds(results: Sequence[CandidateResult]) -> dict[str, float]:
    stages = dict.fromkeys(stage for result in results for stage in result.seconds)
    by_stage = {stage: [r.seconds[stage] for r in results if stage in r.seconds] for stage in stages}
    return {stage: sum(spent) / len(spent) for stage, spent in by_stage.items()}
