"""Reads the search that a verdict belongs to from the store, for a report."""

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.view.verdict import NOT_JUDGED, Step
from kernel_lsp.store.store import Store

_DIGITS = 12  # of a digest, for a candidate without a label


def search_steps(store: Store, verdict: str) -> tuple[Step, ...]:
    """Return the steps of the latest search that reached the verdict of this id, in order; empty if none did."""
    steps: list[Step] = []
    for turn in store.find_turns(verdict):
        document = store.find_verdict(turn.verdict) if turn.verdict else None
        said = Verdict.model_validate(document) if document else None
        label = said.evidence.candidate_label if said else turn.candidate[:_DIGITS]
        outcome = said.verdict.value if said else NOT_JUDGED
        steps.append(Step(turn.number, label, outcome, said.speedup if said else None, turn.prompt, turn.answer))
    return tuple(steps)
