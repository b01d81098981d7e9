"""Recordings are replayed on more inputs than were checked: who is wrong on the others is wrong, and no cheat."""

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from judge_support import draw, fake_harness, fake_subject, timed

from kernel_lsp.judge.inputs import replay, runs
from kernel_lsp.judge.inputs.draw import PLAIN
from kernel_lsp.judge.inputs.replay import Replays
from kernel_lsp.judge.ruling import Ruling, rejected, wrong
from kernel_lsp.judge.verdict import Outcome

CHEAT = rejected("what is timed is not what was checked")
MISTAKE = wrong("output 0 is wrong")


@pytest.mark.parametrize(
    ("family", "checked", "eager", "outcome"),
    [
        ("sorted", (), MISTAKE, Outcome.WRONG),
        ("sorted", (), None, Outcome.ILLEGITIMATE),  # right when it runs by itself
        ("sorted", ("other inputs",), MISTAKE, Outcome.ILLEGITIMATE),  # it was right on these: since then it changed
        (PLAIN, (), MISTAKE, Outcome.ILLEGITIMATE),  # of the plain ones others were checked
    ],
)
def test_an_error_on_inputs_that_were_not_checked_is_looked_at_in_an_eager_run(
    family: str,
    checked: tuple[str, ...],
    eager: Ruling | None,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "compare_launch", AsyncMock(return_value=CHEAT))
    monkeypatch.setattr(runs, "run_again", AsyncMock())
    monkeypatch.setattr(runs, "ruling_of_run", AsyncMock(return_value=eager))
    profile = SimpleNamespace(deadline=lambda *_: 1.0)
    replays = Replays(fake_harness(), fake_subject(), profile, random.Random(1), checked)  # type: ignore[arg-type]
    other = replace(draw(), key="other inputs", family=family)
    ruling = asyncio.run(replays._compare(timed(us=100.0), other, 0))
    assert ruling is not None
    assert ruling.outcome is outcome
