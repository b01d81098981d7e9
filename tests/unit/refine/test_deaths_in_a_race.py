"""A version whose process ends without a message in a search counts as failed the second time only."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.race import RaceResult
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.refine import workbench
from kernel_lsp.refine.outcome import Refinement
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.source.candidate import Candidate, Language, SourceFile

DIED = Ruling(Outcome.RUN_FAILED, Stage.RUN, "its process died", died=True)


def version(text: str) -> Candidate:
    return Candidate(Language.CUDA, SourceFile(Path("k.cu"), text), None, text, "tuner")


class Bench(Workbench):
    """A workbench whose candidates are built."""

    def __init__(self) -> None:
        self.session = cast(
            Any,
            SimpleNamespace(measured=SimpleNamespace(harness=None, profile=None, baseline=SimpleNamespace(built=None))),
        )
        self._counts = {"proposed": 0, "built": 0, "correct": 0, "raced": 0}
        self._random, self._feedback, self.result = cast(Any, None), dict[str, Feedback](), Refinement()
        self._on_tried = lambda _: None

    def show(self, *_: object) -> None: ...

    def _prune(self, *_: object) -> None: ...

    def _keep_cases(self, *_: object) -> None: ...


@pytest.mark.parametrize("where", ["checked", "raced"])
@pytest.mark.parametrize(("deaths", "outcome"), [(1, Outcome.AMBIGUOUS), (2, Outcome.RUN_FAILED)])
def test_a_death_counts_the_second_time(
    where: str, deaths: int, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[str] = []

    def dies(candidate: Candidate, here: str) -> Ruling | None:
        if candidate.label != "killed" or here != where or len(died) == deaths:
            return None
        died.append(here)
        return DIED

    async def enter(_: object, candidate: Candidate, __: object) -> object:
        return SimpleNamespace(candidate=candidate)

    async def check(_: object, subject: Any, *__: object, quick: bool) -> Findings:
        assert quick
        findings = Findings()
        findings.ruling = dies(subject.candidate, "checked")
        return findings

    async def race(_: object, subjects: Sequence[Any], __: object) -> list[RaceResult]:
        return [RaceResult(one, 0.5, (0.4, 0.6), dies(one.candidate, "raced")) for one in subjects]

    async def leave(*_: object) -> None: ...

    for name, stand_in in {
        "enter": enter,
        "check": check,
        "race": race,
        "_leave": leave,
        "_facts": lambda _: None,
    }.items():
        monkeypatch.setattr(workbench, name, stand_in)
    bench, candidates = Bench(), [version("well"), version("killed")]
    built = cast(Built, SimpleNamespace(ok=True))
    monkeypatch.setattr(workbench, "Built", SimpleNamespace)
    raced = asyncio.run(bench._race_built(bench.session, candidates, [built, built], (), 1.0))  # pyright: ignore
    seen = [(one.candidate.label, one.feedback.verdict) for one in bench.result.tried]
    assert seen == [("well", Outcome.AMBIGUOUS), ("killed", outcome)]
    assert bench._counts["built"] == 2  # pyright: ignore[reportPrivateUsage]
    assert [one.subject.candidate.label for one in raced if one.ruling is None] == (
        ["well", "killed"] if outcome is Outcome.AMBIGUOUS else ["well"]
    )
