"""A ruling: the decision of one stage about a candidate, be it failed, right or faster."""

from dataclasses import dataclass

from kernel_lsp.judge.verdict import Mismatch, Outcome, Stage


@dataclass(frozen=True, slots=True)
class Speedup:
    """Baseline time over candidate time, with its confidence interval."""

    ratio: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Ruling:
    """The decision that ends a judgement.

    Attributes:
        outcome: the outcome.
        stage: the stage that decided.
        reason: one sentence for a person.
        mismatch: the first wrong element, where an output is wrong.
        speedup: where it was timed.
        died: True if its process ended without a message, which another process may have caused.
    """

    outcome: Outcome
    stage: Stage
    reason: str
    mismatch: Mismatch | None = None
    speedup: Speedup | None = None
    died: bool = False


def rejected(reason: str) -> Ruling:
    """Return the ruling on a candidate that cheats, or that cannot be told apart from one that does."""
    return Ruling(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, f"rejected: {reason}")


def unless_shared(ruling: Ruling, shared: bool) -> Ruling:
    """Return a ruling on times that disagree: where others use the GPU too, that is no sign of cheating."""
    if not shared:
        return ruling
    reason = f"others use this GPU, and clocks disagree: {ruling.reason.removeprefix('rejected: ')}"
    return Ruling(Outcome.AMBIGUOUS, Stage.TIMED, reason)


def wrong(reason: str, mismatch: Mismatch | None = None) -> Ruling:
    """Return the ruling on a candidate whose answer is wrong."""
    return Ruling(Outcome.WRONG, Stage.CORRECT, reason, mismatch)
