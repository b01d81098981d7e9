"""Reads the search that a verdict belongs to from the store, for a report."""

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.refine.turn_outcome import NOT_JUDGED, turn_outcome_of
from kernel_lsp.report.view.verdict import Step
from kernel_lsp.store.store import Store, Turn

_DIGITS = 12  # of a digest, for a candidate without a label
_NOT_IN_FULL = "not judged in full"


def search_steps(store: Store, verdict: str) -> tuple[Step, ...]:
    """Return the steps of the latest search that reached the verdict of this id, in order; empty if none did."""
    return tuple(_step(store, turn) for turn in store.find_turns(verdict))


def _step(store: Store, turn: Turn) -> Step:
    document = store.find_verdict(turn.verdict) if turn.verdict else None
    if document is not None:
        said = Verdict.model_validate(document)
        label, result, speedup = said.evidence.candidate_label, said.verdict.value, said.speedup
    else:
        outcome = turn_outcome_of(turn)
        label, speedup = turn.candidate[:_DIGITS], outcome.speedup
        result = _NOT_IN_FULL if outcome.result == NOT_JUDGED else f"{outcome.result}, {_NOT_IN_FULL}"
    return Step(turn.number, label, result, speedup, turn.prompt, turn.answer, judged=document is not None)
