"""On inputs that blocks draw anew a candidate may be as far off as the baseline is there."""

import asyncio
import random
from typing import Any

import pytest
from judge_support import fake_harness, fake_subject, timed

from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.integrity.fresh_inputs import FreshInputs
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.runner.messages.oracle_answers import Compared, OutputDistance
from kernel_lsp.runner.messages.subject import Publish, RunSegments
from kernel_lsp.runner.messages.subject_answers import PublishedOutputs, Segment

CASE = timed()
RIGHT_AT_MOST = 64.0


class Version:
    """A version that runs whatever it is asked to."""

    async def ask(self, request: Any, *, deadline: float) -> Any:
        if isinstance(request, Publish):
            return PublishedOutputs((), ())
        assert isinstance(request, RunSegments)
        return (Segment((100.0,) * CASE.launches, (), None),)


class Oracle:
    """Allows twice the baseline's largest error: what it was on other inputs, until it is measured on these."""

    def __init__(self, off: dict[str, float], before: float) -> None:
        self.off, self.allowed, self.asked = off, 2 * before, list[str]()

    async def compare(self, subject: Any, *_: object, baseline: bool = False, **__: object) -> Compared:
        found = self.off[subject.name]
        self.asked.append(subject.name)
        if baseline:
            self.allowed = 2 * found
        allowed = RIGHT_AT_MOST if baseline else self.allowed
        wrong = found > allowed
        return Compared(distances=(OutputDistance(found, 1.0, 1, 9, (0,) if wrong else None, "1", "2", allowed),))


def looked_at(baseline: float, candidate: float, monkeypatch: pytest.MonkeyPatch) -> tuple[Outcome | None, list[str]]:
    """What follows from a look at fresh inputs on which both are so far off, and whose outputs were compared."""
    oracle = Oracle({"baseline": baseline, "candidate": candidate}, before=5.0)

    async def renewed(*_: object, **__: object) -> None: ...

    async def fresh(*_: object) -> object:
        return CASE.draw

    monkeypatch.setattr(drawing, "fresh", fresh)
    harness = fake_harness(oracle=renewed, draws={}, compare=oracle.compare)
    first, second = (fake_subject(Version(), name) for name in ("baseline", "candidate"))
    inputs = FreshInputs(harness, first, second, None, True, random.Random(1))

    async def look() -> None:
        await inputs.renew(CASE)
        await inputs.finish([CASE])

    asyncio.run(look())
    return inputs.ruling and inputs.ruling.outcome, oracle.asked


def test_the_baselines_own_error_on_the_same_inputs_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, asked = looked_at(11.0, 11.0, monkeypatch)
    assert outcome is None
    assert asked == ["candidate", "baseline", "candidate"]


def test_who_is_further_off_than_twice_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_at(11.0, 23.0, monkeypatch)[0] is Outcome.WRONG
    assert looked_at(3.0, 11.0, monkeypatch)[0] is Outcome.WRONG


def test_a_baseline_that_is_wrong_there_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, asked = looked_at(RIGHT_AT_MOST + 1, RIGHT_AT_MOST + 1, monkeypatch)
    assert outcome is Outcome.WRONG
    assert asked == ["candidate", "baseline"]


def test_the_baseline_is_not_asked_where_all_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_at(5.0, 9.0, monkeypatch) == (None, ["candidate"])
