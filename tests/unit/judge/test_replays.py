"""Recordings are replayed on more inputs than were checked: who is wrong on the others is wrong, and no cheat."""

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from judge_support import draw, fake_harness, fake_subject, timed

from kernel_lsp.judge.inputs import check, replay, runs
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.draw import PLAIN, Draw
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.inputs.replay import Replays
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.ruling import Ruling, rejected, wrong
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.runner.messages.oracle_answers import Compared

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


class Replayed:
    """Recordings that are replayed; it notes for each segment which inputs lie in each buffer, and what is compared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, buffers: int) -> None:
        self.case = replace(timed(launches=buffers), buffers=buffers)
        self.lying = dict.fromkeys(self.case.names, PLAIN)
        self.segments: list[list[str]] = []
        self.compared: list[tuple[str, list[str]]] = []
        self.places: set[int] = set()
        monkeypatch.setattr(replay, "fill", self._fill)
        monkeypatch.setattr(replay, "run_segment", self._run)
        monkeypatch.setattr(replay, "compare_launch", self._compare)
        monkeypatch.setattr(replay, "prepare", AsyncMock())

    def on(self, draws: list[Draw], *, apart: bool = True, places: int = 1) -> None:
        profile = BaselineProfile(draws=draws)
        replays = Replays(fake_harness(unbind=AsyncMock()), fake_subject(), profile, random.Random(5), (), places)
        assert asyncio.run(replays.on_all_inputs([self.case], apart=apart)) is None

    async def _fill(self, _harness: object, _subject: object, case: TimedCase, draw: Draw, names: Any = None) -> None:
        self.lying |= dict.fromkeys(case.names if names is None else names, draw.family)

    async def _run(self, _subject: object, case: TimedCase) -> None:
        self.segments.append([self.lying.get(name, "apart") for name in case.sequence])

    async def _compare(self, _harness: object, _subject: object, case: TimedCase, draw: Draw, launch: int) -> None:
        self.places.add(case.place)
        before = self.segments[-1][launch - 1] if launch else self.segments[-2][-1]
        self.compared.append((draw.family, [before, self.segments[-2][launch]]))


@pytest.mark.parametrize("buffers", [1, 2, 5, 8])
def test_every_launch_on_other_inputs_follows_one_on_plain_inputs(
    buffers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the stream as in its own memory: else what is kept of plain inputs is gone before almost equal ones come."""
    replayed = Replayed(monkeypatch, buffers)
    families = [f"family {number}" for number in range(9)]
    replayed.on([replace(draw(), key=family, family=family) for family in families])
    assert [family for family, _ in replayed.compared] == families
    assert all(before == [PLAIN, PLAIN] for _, before in replayed.compared)
    assert set(replayed.lying.values()) == {PLAIN}


def test_where_there_are_several_places_nobody_knows_which_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host code that counts its recordings could be careful in the one, and careless in all others."""
    replayed = Replayed(monkeypatch, 2)
    replayed.on([replace(draw(), key=f"{number}", family="sorted") for number in range(40)], places=4)
    assert replayed.places == {0, 1, 2, 3}
    assert all(before == [PLAIN, PLAIN] for _, before in replayed.compared)


def test_cases_that_are_not_timed_are_replayed_in_the_one_place_that_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = Replayed(monkeypatch, 2)
    profile = BaselineProfile(draws=[replace(draw(), key=f"{number}", family="sorted") for number in range(20)])
    replays = Replays(fake_harness(unbind=AsyncMock()), fake_subject(), profile, random.Random(5), (), 4)
    assert asyncio.run(replays.on_other_cases([replayed.case])) is None
    assert replayed.places == {0}


@pytest.mark.parametrize(("apart", "compared"), [(True, ["sorted", "strided"]), (False, ["sorted"])])
def test_after_timing_what_was_timed_is_replayed_and_nothing_is_recorded_anew(
    apart: bool, compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = Replayed(monkeypatch, 4)
    lies_elsewhere = draw(arguments=(7,))
    draws = [replace(draw(), key="a", family="sorted"), replace(lies_elsewhere, key="b", family="strided")]
    replayed.on(draws, apart=apart)
    assert [family for family, _ in replayed.compared] == compared


@pytest.mark.parametrize(
    ("family", "gpu", "ran"),
    [("touched", object(), ["plain", "touched"]), ("sorted", object(), ["sorted"]), ("touched", None, ["touched"])],
)
def test_touched_inputs_follow_those_that_they_were_made_of(
    family: str, gpu: object, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who keeps the last answer, and compares a few samples of its inputs, gives that one again."""
    noted: list[str] = []

    async def run_again(_harness: object, _subject: object, made: Draw, _deadline: float) -> Any:
        noted.append(made.key)
        return SimpleNamespace(published=None, own_weights=(), trampled=(), places=(), emulated=None)

    monkeypatch.setattr(runs, "run_again", run_again)
    monkeypatch.setattr(check, "_form", lambda *_: MISTAKE)
    plain = replace(draw(), key="plain")
    other = replace(plain, key=family, family=family)
    version = fake_subject()
    version.bound[plain.buffer] = (plain.buffer,)
    settings = SimpleNamespace(runner=SimpleNamespace(deadline_floor_s=1.0, deadline_factor=20.0))
    harness = fake_harness(gpu=gpu, compare=AsyncMock(return_value=Compared()), settings=settings)
    asyncio.run(check._run(harness, version, other, BaselineProfile(draws=[plain, other]), Findings()))
    assert noted == ran
