"""One judgement from stage to stage: the first that rules ends it, and nothing of the candidate is left running."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from judge_support import fake_context, fake_harness, fake_subject, timed

from kernel_lsp.judge import judgement
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.judgement import judge
from kernel_lsp.judge.measure.blocks import TimedOutputsDiffer
from kernel_lsp.judge.measure.cases import NothingTimed
from kernel_lsp.judge.ruling import Ruling, rejected, wrong
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import WorkerTimedOut

FASTER, SAME = (Ruling(outcome, Stage.TIMED, "as it was found") for outcome in (Outcome.FASTER, Outcome.SAME))
CASES = (timed("short", us=8.0), timed(case=1))


class Worker:
    """A process that is alive until it is told otherwise."""

    alive, pid = True, 42


class Judging:
    """A judgement whose stages are given, each what it rules, raises or does; what happens is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stages: list[Any], timing: list[Any], **options: Any) -> None:
        self.noted: list[str] = []
        harness = fake_harness(leave=self._leave, rest=self._nothing, enter=self._enter, recover=self._recover)
        self.context: Context = fake_context(harness, CASES)
        self.context.measured.baseline.worker = self.context.running.worker = Worker()  # type: ignore[assignment]
        self.context.built = cast(Any, "the build")
        self.context.running.own_weights = ()
        for name, value in options.items():
            setattr(self.context, name, value)
        monkeypatch.setattr(judgement, "STAGES", [self._stage(f"stage {n}", s) for n, s in enumerate(stages)])
        monkeypatch.setattr(judgement, "TIMING", [self._stage(f"timing {n}", s) for n, s in enumerate(timing)])
        monkeypatch.setattr(judgement, "check_finally", self._finally)
        monkeypatch.setattr(judgement, "prepare", self._prepare)

    def ruled(self) -> Ruling:
        return asyncio.run(judge(self.context))

    def _stage(self, name: str, does: Any) -> Any:
        async def stage(context: Context) -> Ruling | None:
            self.noted.append(name)
            if callable(does):
                does(context)
                return None
            if isinstance(does, Exception):
                raise does
            return does

        return stage

    async def _finally(self, _context: Context, confirmed: Ruling) -> Ruling:
        self.noted.append("finally")
        return confirmed

    async def _enter(self, *_: object) -> Subject:
        self.noted.append("enter")
        version = fake_subject(Worker(), "B anew")
        version.own_weights = ("scale",)
        return version

    async def _leave(self, version: Subject) -> None:
        self.noted.append(f"leave {version.name}")

    async def _recover(self, pid: int) -> None:
        self.noted.append(f"recover {pid}")

    async def _prepare(self, _harness: object, version: Subject, cases: Any) -> None:
        self.noted.append(f"{version.name} is timed {'as graphs' if cases[0].captured else 'launch by launch'}")

    async def _nothing(self, *_: object) -> None:
        pass


def test_the_first_stage_that_rules_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    judging = Judging(monkeypatch, [None, wrong("no"), None], [SAME])
    assert judging.ruled() == wrong("no")
    assert judging.noted == ["stage 0", "stage 1", "leave B"]


def test_only_a_gain_is_looked_at_finally(monkeypatch: pytest.MonkeyPatch) -> None:
    for ruling, known, looked in ((SAME, False, False), (FASTER, True, False), (FASTER, False, True)):
        judging = Judging(monkeypatch, [None], [None, ruling], known=known)
        assert judging.ruled() == ruling
        assert ("finally" in judging.noted) is looked


def test_what_was_loaded_anew_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    judging = Judging(monkeypatch, [None], [SAME], reloaded=[fake_subject(name="A2"), fake_subject(name="B2")])
    judging.ruled()
    assert judging.noted[-3:] == ["leave B", "leave A2", "leave B2"]
    assert judging.context.reloaded == []


def test_where_nothing_was_loaded_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    judging = Judging(monkeypatch, [wrong("no")], [], subject=None)
    assert judging.ruled() == wrong("no")
    assert judging.noted == ["stage 0"]


def test_the_gpu_is_seen_to_work_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(context: Context) -> None:
        context.findings.fail("inputs: normal", Ruling(Outcome.RUN_FAILED, Stage.RUN, "a fault"))

    judging = Judging(monkeypatch, [fault], [SAME])
    judging.ruled()
    assert judging.noted[-1] == "recover 42"


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (TimedOutputsDiffer(), Outcome.ILLEGITIMATE, "rejected: launches that were timed left other outputs"),
        (NothingTimed(), Outcome.ILLEGITIMATE, "rejected: what is timed does nothing on the GPU"),
        (TimeoutError("the clock never kept still"), Outcome.AMBIGUOUS, "the clock never kept still"),
        (WorkerFailure("ValueError", "no", ""), Outcome.RUN_FAILED, "it failed being timed on case of the workload"),
        (WorkerTimedOut("no answer"), Outcome.TIMED_OUT, "it did not finish being timed"),
    ],
)
def test_what_breaks_while_it_is_timed_is_ruled_on(
    error: Exception, outcome: Outcome, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruling = Judging(monkeypatch, [None], [None, error]).ruled()
    assert ruling.outcome is outcome
    assert said in ruling.reason


def test_a_baseline_that_breaks_is_not_the_candidates_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    judging = Judging(monkeypatch, [None], [WorkerTimedOut("no answer")])
    judging.context.measured.baseline.worker.alive = False  # type: ignore[misc]
    with pytest.raises(WorkerTimedOut):
        judging.ruled()


class NotAtFirst:
    """Refuses to be captured the first time, when both sides have been loaded anew already."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, int, tuple[str, ...]]] = []

    def __call__(self, context: Context) -> None:
        captured = context.cases[0].captured
        self.seen.append((captured, len(context.reloaded), context.running.own_weights))
        context.reloaded += [fake_subject(name="A2"), fake_subject(name="B2")]
        if captured:
            raise WorkerFailure("NotCapturableError", "it synchronises", "")


def test_what_cannot_be_captured_is_timed_launch_by_launch_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    confirming = NotAtFirst()
    judging = Judging(monkeypatch, [None], [None, confirming, SAME])
    assert judging.ruled() == SAME
    assert confirming.seen == [(True, 0, ()), (False, 0, ())], "nothing of the first try is left, nor forgotten"
    assert judging.context.cases == tuple(replace(case, captured=False, mode="cold") for case in CASES)
    assert judging.noted == [
        "stage 0",
        *("timing 0", "timing 1"),
        *("leave B", "leave A2", "leave B2", "enter"),
        "A is timed launch by launch",
        *("timing 0", "timing 1", "timing 2"),
        "A is timed as graphs",
        *("leave B anew", "leave A2", "leave B2"),
    ]


@pytest.mark.parametrize("error", [TimedOutputsDiffer(), NothingTimed(), WorkerFailure("NotCapturableError", "no", "")])
def test_nor_is_it_spared_then(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(context: Context) -> None:
        raise error if not context.cases[0].captured else WorkerFailure("NotCapturableError", "no", "")

    judging = Judging(monkeypatch, [None], [first])
    ruling = judging.ruled()
    assert ruling.outcome.is_failure
    assert ruling == rejected("what is timed does nothing on the GPU") or not isinstance(error, NothingTimed)
    assert "A is timed as graphs" in judging.noted, "the next candidate finds the baseline as it was"
