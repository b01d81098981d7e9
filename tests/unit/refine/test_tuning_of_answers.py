"""An answer's settings are tuned: it is told by what was confirmed, and keeps its outcome where tuning breaks down."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.refine import workbench
from kernel_lsp.refine.answer_handler import AnswerHandler
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.refine.outcome import Refinement
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.source.candidate import Candidate, Language, SourceFile


def version(text: str) -> Candidate:
    return Candidate(Language.CUDA, SourceFile(Path("k.cu"), text), None, text, "tuner")


@pytest.mark.parametrize("confirms", [True, False])
def test_what_was_confirmed_is_preferred_to_a_better_race(confirms: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, judged, raced = version("of another answer"), version("256 threads"), version("128 threads")
    monkeypatch.setattr(workbench, "tuners_for", lambda _: None)

    class Bench(Workbench):
        def __init__(self) -> None:
            self.session, self.result = cast(Any, SimpleNamespace(device=None)), Refinement(variant=earlier)
            self._feedback = {
                judged.digest: Feedback(Stage.TIMED, Outcome.FASTER, 0.20),
                raced.digest: Feedback(Stage.TIMED, Outcome.AMBIGUOUS, 0.19),
            }

        def left(self) -> float:
            return 60.0

        async def _climb(self, *_: object) -> tuple[Candidate, float]:
            if confirms:
                self.result.variant = judged
            return raced, 0.19

    found = asyncio.run(Bench().tune(version("512 threads"), 0.25, 20.0))
    assert found is not None
    assert (found[0], found[1].verdict) == ((judged, Outcome.FASTER) if confirms else (raced, Outcome.AMBIGUOUS))


def test_an_answer_keeps_its_outcome_where_tuning_it_breaks_down() -> None:
    outcome = Feedback(Stage.TIMED, Outcome.FASTER, ratio=0.5)

    async def try_out(_: object) -> Feedback:
        return outcome

    async def tune(*_: object) -> None:
        raise UnjudgedError("not judged: this GPU has too little memory free")

    baseline, candidate = (
        Candidate(Language.CUDA, SourceFile(Path("k.cu"), text), None, label, "user")
        for text, label in (("old", "baseline"), ("new", "turn 1"))
    )
    bench = SimpleNamespace(
        session=SimpleNamespace(target=SimpleNamespace(baseline=baseline)),
        try_out=try_out,
        tune=tune,
        left=lambda: 60.0,
        best_ratio=0.5,
        notes=[],
    )
    task = SimpleNamespace(candidate=lambda _: candidate)
    handler = AnswerHandler(cast(Any, bench), cast(Any, task), remember=False)
    received = asyncio.run(handler.receive(ModelAnswer("an answer")))
    assert received.outcome is outcome
    assert bench.notes == ["`turn 1` was not tuned further: not judged: this GPU has too little memory free"]
