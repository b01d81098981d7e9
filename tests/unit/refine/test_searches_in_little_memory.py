"""Searches where judging takes much of the GPU's memory: races hold few candidates, and none costs an outcome."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.refine.answer_handler import AnswerHandler
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.source.candidate import Candidate, Language, SourceFile


class Numbers:
    """A proposer of ten candidates, which counts how many it is asked for at once."""

    def __init__(self) -> None:
        self.left, self.asked = 10, list[int]()

    async def next(self, budget: int) -> list[Any]:
        self.asked.append(budget)
        found = [SimpleNamespace(digest=str(self.left - n)) for n in range(min(budget, self.left))]
        self.left -= len(found)
        return found


class Bench(Workbench):
    """A workbench whose session is made up of whether its kernel is large."""

    def __init__(self, *, large: bool, others: int) -> None:
        harness = SimpleNamespace(large=large)
        self.session = cast(Any, SimpleNamespace(measured=SimpleNamespace(harness=harness)))
        self._others, self._seen, self._counts = cast(Any, (None,) * others), set(), {"proposed": 0}


@pytest.mark.parametrize(("large", "others", "sizes"), [(False, 0, [8, 2]), (True, 0, [1] * 10), (True, 1, [2] * 5)])
def test_large_kernels_race_one_by_one_on_each_gpu(large: bool, others: int, sizes: list[int]) -> None:
    bench, source = Bench(large=large, others=others), Numbers()

    async def rounds() -> list[int]:
        found: list[int] = []
        while proposed := await bench._propose([cast(Any, source)]):  # pyright: ignore[reportPrivateUsage]
            found.append(len(proposed))
        return found

    assert asyncio.run(rounds()) == sizes
    assert max(source.asked) == max(sizes)


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
