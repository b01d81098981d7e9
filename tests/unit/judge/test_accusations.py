"""A candidate is accused of a claim only if it has one: what gains nothing when it is measured again is let be."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from judge_support import fake_context, fake_harness, fake_subject, scattered, timed

from kernel_lsp import policy
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.integrity import host_time
from kernel_lsp.judge.integrity.host_time import CallTimes
from kernel_lsp.judge.measure.blocks import Series
from kernel_lsp.judge.measure.procedure import DecisionRule, FirstLook
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.stages import confirm as stage
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import CheckStatus, Outcome

ACCUSED = rejected("it says too little")
REMEMBERS = rejected("it remembers answers")


async def nothing(*_: object, **__: object) -> None:
    pass


@asynccontextmanager
async def timer() -> AsyncGenerator[tuple[()]]:
    yield ()


class Confirmation:
    """A second look whose blocks are given, with every accusation at hand; it notes those that are made."""

    def __init__(self, fresh: Sequence[Sequence[float]], *, renewed: bool = True, broken: Ruling | None = None) -> None:
        self.fresh = [iter(case) for case in fresh]
        self.renewed, self.broken, self.drawn = renewed, broken, True
        self.rng = random.Random(3)
        self.asked: list[str] = []
        self.memories, self.versions = policy.PLACES, ()
        self.placed = [timed(case=number, us=1000.0) for number in range(len(fresh))]

    async def make_ready(self) -> None:
        self.asked.append("ready")

    async def watched_block(self, series: Series) -> bool:
        for column, values in zip(series.blocks, self.fresh, strict=True):
            column.append(next(values))
        return True

    async def finish(self, _cases: object) -> Ruling | None:
        return self.broken

    def summary(self) -> str:
        return "drawn anew 20 times"

    async def remembers(self, *_: object) -> Ruling | None:
        self.asked.append("remembers")
        return None

    async def doubt(self, *_: object) -> Ruling | None:
        self.asked.append("doubt")
        return ACCUSED

    def ruled(self, first: Sequence[Sequence[float]], monkeypatch: pytest.MonkeyPatch) -> tuple[Context, Ruling]:
        """What the stage says after a first look with these blocks, by case."""

        async def enter(*_: object) -> object:
            version = fake_subject()
            version.own_weights = ("scale",)  # by their names alone
            return version

        context = fake_context(fake_harness(rest=nothing, settle=nothing, enter=enter), self.placed, timer)
        context.series = Series.empty(self.placed)
        context.first = FirstLook(DecisionRule.of(self.placed, context.session.settings.judge, shared=False))
        for block in zip(*first, strict=True):
            context.first.add(block, 1.0)
        stood_in = {
            "make_pair": lambda *_, **__: self,
            "FreshInputs": lambda *_: self,
            "remembers": self.remembers,
            "_doubt": self.doubt,
            "warm_up": nothing,
            "device_now": lambda *_: SimpleNamespace(shared=False),
        }
        with monkeypatch.context() as patch:
            patch.setattr(policy, "CONFIRM_AFTER_SECONDS", 0.0)
            for name, stand_in in stood_in.items():
                patch.setattr(stage, name, stand_in)
            ruling = asyncio.run(stage.confirm(context))
        assert ruling is not None, "the last stage rules"
        return context, ruling


GAIN, LOSS = scattered(-0.05, 0.005, 8), scattered(0.02, 0.005, 8)


@pytest.mark.parametrize(
    ("again", "outcome"),
    [
        ((0.0, 0.002), Outcome.SAME),
        ((0.0, 0.05), Outcome.AMBIGUOUS),
        ((0.05, 0.005), Outcome.NOT_WORTH_IT),
    ],
)
def test_what_gains_nothing_when_it_is_measured_again_is_let_be(
    again: tuple[float, float], outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Confirmation([scattered(*again, policy.CONFIRMATION_BLOCKS)])
    context, ruling = look.ruled([GAIN], monkeypatch)
    assert ruling.outcome is outcome, ruling.reason
    assert "doubt" not in look.asked
    assert (context.confirmation_blocks, context.memories) == (policy.CONFIRMATION_BLOCKS, policy.PLACES)
    assert ruling.reason.startswith("it looked faster at first; measured again it was ")


def test_a_gain_that_is_measured_again_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Confirmation([scattered(-0.05, 0.005, policy.CONFIRMATION_BLOCKS)])
    context, ruling = look.ruled([GAIN], monkeypatch)
    assert ruling == ACCUSED
    assert look.asked == ["ready", "doubt"]
    assert len(context.reloaded) == 2, "both sides were loaded anew"
    assert [version.own_weights for version in context.reloaded] == [(), ()], "they are given other weights too"


def test_so_is_one_that_is_slower_on_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [scattered(-0.3, 0.005, policy.CONFIRMATION_BLOCKS), scattered(0.05, 0.005, policy.CONFIRMATION_BLOCKS)]
    look = Confirmation(blocks)
    _, ruling = look.ruled([scattered(-0.3, 0.005, 8), scattered(0.05, 0.005, 8)], monkeypatch)
    assert ruling == ACCUSED


def test_who_claims_a_loss_is_accused_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for mean, outcome in ((0.02, Outcome.SLOWER), (-0.05, Outcome.AMBIGUOUS)):
        look = Confirmation([scattered(mean, 0.005, policy.CONFIRMATION_BLOCKS)])
        _, ruling = look.ruled([LOSS], monkeypatch)
        assert ruling.outcome is outcome
        assert look.asked == ["ready"], "a loss that a disturbed GPU makes a gain is no lie"


@pytest.mark.parametrize(
    ("mean", "renewed", "looked"), [(-0.05, True, False), (-0.05, False, True), (0.0, True, True), (0.0, False, True)]
)
def test_memory_is_looked_for_where_fresh_inputs_took_the_gain_or_were_not_drawn(
    mean: float, renewed: bool, looked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Confirmation([scattered(mean, 0.002, policy.CONFIRMATION_BLOCKS)], renewed=renewed)
    context, _ = look.ruled([GAIN], monkeypatch)
    assert ("remembers" in look.asked) is looked
    (check,) = context.findings.checks
    assert (check.status, check.detail) == (CheckStatus.PASSED, "drawn anew 20 times")


@pytest.mark.parametrize("mean", [0.0, 0.05])
def test_where_the_host_is_timed_who_claims_no_gain_any_more_is_not_taken_to_remember(
    mean: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Confirmation([scattered(mean, 0.05, policy.CONFIRMATION_BLOCKS)])
    look.placed = [replace(case, baseline_us=370.0, captured=False) for case in look.placed]
    _, ruling = look.ruled([scattered(-0.2, 0.005, 8)], monkeypatch)
    assert ruling.outcome is Outcome.AMBIGUOUS, ruling.reason
    assert "remembers" not in look.asked


def test_a_wrong_answer_to_fresh_inputs_ends_it_whatever_is_left_of_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    for mean in (-0.05, 0.0):
        look = Confirmation([scattered(mean, 0.002, policy.CONFIRMATION_BLOCKS)], broken=REMEMBERS)
        context, ruling = look.ruled([GAIN], monkeypatch)
        assert ruling == REMEMBERS == context.findings.ruling
        assert look.asked == ["ready"]


def test_memory_is_not_said_to_be_excluded_where_no_inputs_could_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Confirmation([scattered(-0.05, 0.002, policy.CONFIRMATION_BLOCKS)], renewed=False)
    look.drawn = False
    context, _ = look.ruled([GAIN], monkeypatch)
    (check,) = context.findings.checks
    assert check.status is CheckStatus.SKIPPED
    assert "memory is not excluded" in check.detail


@pytest.mark.parametrize(("shared", "outcome"), [(False, Outcome.ILLEGITIMATE), (True, Outcome.AMBIGUOUS)])
def test_clocks_that_disagree_are_no_lie_where_others_came_to_use_the_gpu(
    shared: bool, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outside(*_: object, **__: object) -> Ruling:
        return rejected("it says 37.55 ms, but seen from outside they took 62.68 ms")

    context = fake_context(fake_harness(fill=nothing, large=True), [], timer)
    context.reloaded = [fake_subject(), fake_subject()]
    for name, stand_in in {
        "check_recordings": lambda *_: None,
        "Replays": lambda *_: SimpleNamespace(on_new_inputs=nothing, on_all_inputs=nothing),
        "seen_from_outside": outside,
        "device_now": lambda *_: SimpleNamespace(shared=shared),
    }.items():
        monkeypatch.setattr(stage, name, stand_in)
    pair = SimpleNamespace(recorded={"A": (), "B": ()}, places=1, anywhere=list)
    ruling = asyncio.run(stage._doubt(context, pair, Series.empty([]), random.Random(1)))  # type: ignore[arg-type]
    assert ruling is not None
    assert ruling.outcome is outcome
    assert "37.55 ms" in ruling.reason


@pytest.mark.parametrize(
    ("large", "slow", "asked", "held"),
    [
        (False, [], ["again"], False),
        (False, ["again"], ["again", "first"], False),
        (False, ["again", "first"], ["again", "first", "further"], False),
        (False, ["again", "first", "further"], ["again", "first", *["further"] * policy.FURTHER_PROCESS_PAIRS], True),
        (True, ["again"], ["again"], True),
    ],
)
def test_calls_are_looked_at_in_the_processes_of_both_looks_before_others_are_made(
    large: bool, slow: list[str], asked: list[str], held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def time_calls(_harness: object, baseline: Subject, candidate: Subject, cases: object) -> list[CallTimes]:
        assert baseline.name.split()[0] == "A"
        place = candidate.name.partition(" ")[2] or "first"
        seen.append(place)
        assert cases == ([timed(us=50.0)] if place == "first" else [timed(us=40.0)])
        return [CallTimes(timed(us=40.0), 60.0, 95.0 if place in slow else 60.0)]

    async def reload(_context: object, version: Subject) -> Subject:
        return fake_subject(name=f"{version.name} further")

    context = fake_context(fake_harness(leave=nothing, large=large), [timed(us=50.0)], timer)
    context.cases = [timed(us=50.0)]  # type: ignore[assignment]
    context.reloaded = [fake_subject(name="A again"), fake_subject(name="B again")]
    monkeypatch.setattr(host_time, "time_calls", time_calls)
    monkeypatch.setattr(stage, "_reload", reload)
    monkeypatch.setattr(stage, "ready", nothing)
    ruling = asyncio.run(stage._host_takes_back(context, [timed(us=40.0)], [10.0]))
    assert (ruling is not None, seen) == (held, asked)


@pytest.mark.parametrize(
    ("later", "held", "entered"), [([None], None, 2), (["b", None], None, 4), (["b", "c", "d"], "d", 6)]
)
def test_who_is_slow_in_one_process_alone_is_not_refused(
    later: list[str | None], held: str | None, entered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[object] = []
    seen: list[object] = []

    async def reload(_context: object, version: object) -> object:
        inside.append(version)
        seen.append(version)
        return version

    async def leave(version: object) -> None:
        inside.remove(version)

    async def ask(*_: object) -> Ruling | None:
        said = later.pop(0)
        return None if said is None else rejected(said)

    context = fake_context(fake_harness(leave=leave, large=False), [], timer)
    context.subject = fake_subject()
    monkeypatch.setattr(stage, "_reload", reload)
    monkeypatch.setattr(stage, "ready", nothing)
    ruling = asyncio.run(stage._elsewhere(context, [], ask, rejected("a")))
    assert (ruling and ruling.reason.removeprefix("rejected: ")) == held
    assert len(seen) == entered
    assert not inside, "no process is left behind"


def test_all_families_are_tried_again_in_the_process_in_which_a_gain_was_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A version can tell that process from the first one, which alone was given them before it was timed."""
    asked: list[tuple[object, dict[str, object]]] = []

    async def on_all_inputs(cases: object, **how: object) -> Ruling:
        asked.append((cases, how))
        return rejected("it was right on these inputs before")

    context = fake_context(fake_harness(fill=nothing), [], timer)
    context.reloaded = [fake_subject(), fake_subject()]
    monkeypatch.setattr(stage, "check_recordings", lambda *_: None)
    monkeypatch.setattr(stage, "fill", nothing)
    replays = SimpleNamespace(on_new_inputs=nothing, on_all_inputs=on_all_inputs)
    monkeypatch.setattr(stage, "Replays", lambda *given: replays if given[-1] == 4 else None)
    placed = [replace(timed(us=50.0), place=3)]
    pair = SimpleNamespace(recorded={"A": (), "B": ()}, places=4, anywhere=lambda: placed)
    ruling = asyncio.run(stage._doubt(context, pair, Series.empty([]), random.Random(1)))  # type: ignore[arg-type]
    assert asked == [(placed, {"apart": False})], "as many as there are, in a place by chance"
    assert ruling is not None
    assert ruling.outcome is Outcome.ILLEGITIMATE
