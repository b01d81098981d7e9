"""The records of a turn of a search in the store: its outcome, and what it was asked and tried with."""

from kernel_lsp.judge.record import Record
from kernel_lsp.judge.verdict import Outcome, Stage, checked_right
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.store.store import Turn

REJECTED = "REJECTED"
"""Result of an answer that breaks the rules of its format or changes nothing."""
NOT_JUDGED = "NOT_JUDGED"
"""Result of a candidate on which nothing was decided: the search ended first, or what judges broke."""


class TurnOutcome(Record):
    """The result of a candidate, as a turn keeps it.

    Attributes:
        result: the name of an `Outcome`, REJECTED or NOT_JUDGED.
        stage: the stage that decided it; None without a candidate or a decision.
        reason: one sentence.
        speedup: the baseline's time over the candidate's; None untimed.
        interval: its confidence interval.
        judged: True if a full judgement decided it, and not a race, whose checks are fewer.
        told: the feedback that the model's next turn is given.
    """

    result: str
    stage: Stage | None = None
    reason: str = ""
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    judged: bool = False
    told: str = ""

    @property
    def right(self) -> bool:
        """True if no check failed and there was one that could; those of a race are fewer."""
        if self.stage is None or self.result in (REJECTED, NOT_JUDGED):
            return False
        return checked_right(Outcome(self.result), self.stage, self.reason)


class Circumstances(Record):
    """The model, the GPU and the judge of a turn.

    Attributes:
        kernel: path of the user's file.
        language: it is written in.
        gpu: name of the GPU that candidates ran on; None for the emulator.
        judge: digest of the judge's rules and code.
        collect: False if the project's settings keep its turns out of datasets.
        model, profile, temperature, top_p, top_k, seed: see `Drawn`; None where no model was asked.
        complete: True if the model ended its answer, and no limit did.
    """

    kernel: str
    language: str
    gpu: str | None
    judge: str
    collect: bool
    model: str | None = None
    profile: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    complete: bool = True


def turn_outcome(outcome: Feedback | str | None, *, judged: bool, told: str = "") -> TurnOutcome:
    """Return an outcome as a turn keeps it; a text is the reason of a rejection, None says that nothing was decided."""
    if outcome is None:
        return TurnOutcome(result=NOT_JUDGED, told=told)
    if isinstance(outcome, str):
        return TurnOutcome(result=REJECTED, reason=outcome, told=told)
    return TurnOutcome(
        result=outcome.verdict.value,
        stage=outcome.stage,
        reason=outcome.message,
        speedup=1 / outcome.ratio if outcome.ratio else None,
        interval=(1 / outcome.interval[1], 1 / outcome.interval[0]) if outcome.interval else None,
        judged=judged,
        told=told,
    )


def turn_outcome_of(turn: Turn) -> TurnOutcome:
    """Return the outcome of a stored turn: not judged where an older version of this program kept none."""
    return TurnOutcome.model_validate(turn.outcome) if turn.outcome else TurnOutcome(result=NOT_JUDGED)
