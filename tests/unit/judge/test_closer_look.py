"""A confirmed gain is looked at while it is under a steady load: neither goes on behind the back of whoever waits."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from judge_support import fake_context, fake_harness, fake_subject, timed

from kernel_lsp.judge.context import Context
from kernel_lsp.judge.measure.blocks import Series
from kernel_lsp.judge.measure.steady_load import ShortRuns
from kernel_lsp.judge.ruling import Ruling, Speedup, rejected
from kernel_lsp.judge.stages.final_checks import check_finally
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.timing import SustainedRun
from kernel_lsp.judge.verdict import Check, CheckStatus, Outcome, Stage
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import both

GAIN = Ruling(Outcome.FASTER, Stage.TIMED, "1.5x", speedup=Speedup(1.5, (1.4, 1.6)))
LOADED = Check(name="steady load", status=CheckStatus.PASSED)


class Looks:
    """Last looks that only note when they begin and end, and a steady load that may fail."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        large: bool = False,
        error: Exception | None = None,
        found: Ruling | None = None,
        sustained: SustainedRun | None = None,
    ) -> None:
        self.noted: list[str] = []
        self._error, self._found, self._sustained = error, found, sustained
        harness = fake_harness(large=large, leave=self._leave)
        self.context: Context = fake_context(harness, [timed(us=5.0), timed(us=80.0)], self._timer, self)
        self.context.series = Series(
            self.context.cases, [[], []], [[10.0], [100.0]], [[5.0], [80.0]], clocks=[1880.0, 1900.0, 1905.0]
        )
        self.context.reloaded = [fake_subject(name="A again"), fake_subject(name="B again")]
        monkeypatch.setattr("kernel_lsp.judge.stages.final_checks.steady_load.measure", self._load)

    async def closer(self) -> Ruling:
        return await check_finally(self.context, GAIN)

    @asynccontextmanager
    async def _timer(self) -> AsyncGenerator[None]:
        self.noted.append("alone on the GPU")
        yield

    async def examine(
        self, candidate: Subject, _findings: object, _timeline: object, loaded: asyncio.Event
    ) -> Ruling | None:
        assert candidate.name == "B"
        self.noted.append("look")
        try:
            await loaded.wait()
            self.noted.append("on the GPU")
        finally:
            await asyncio.sleep(0.01)  # its worker is let go of
            self.noted.append("looked")
        return self._found

    async def _load(
        self, _harness: object, baseline: Subject, candidate: Subject, case: object, short: object
    ) -> object:
        assert (baseline.name, candidate.name) == ("A again", "B again")
        assert case == timed(us=80.0), "the longest"
        assert short == ShortRuns(1.25, 1900.0), "by its blocks"
        self.noted.append("load")
        await asyncio.sleep(0.01)
        if self._error is not None:
            raise self._error
        self.noted.append("loaded")
        return LOADED, self._sustained

    async def _leave(self, version: Subject) -> None:
        self.noted.append(f"left {version.name}")


def test_the_look_has_ended_when_the_load_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, error=WorkerFailure("RuntimeError", "no", ""))

    async def failed() -> list[str]:
        with pytest.raises(WorkerFailure):
            await looks.closer()
        return list(looks.noted)

    assert asyncio.run(failed()) == ["look", "alone on the GPU", "load", "looked"]


def test_side_by_side_where_there_is_memory_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert asyncio.run(looks.closer()) == GAIN
    after = ["on the GPU", "looked"]
    assert looks.noted == ["look", "alone on the GPU", "load", "loaded", *after], "they would show in the load"
    assert looks.context.findings.checks == [LOADED]


def test_memory_of_what_was_timed_is_free_before_a_look_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, large=True)
    assert asyncio.run(looks.closer()) == GAIN
    left = ["left A again", "left B again"]
    assert looks.noted == ["alone on the GPU", "load", "loaded", *left, "look", "on the GPU", "looked"]
    assert looks.context.reloaded == [], "nobody leaves them twice"


@pytest.mark.parametrize(("large", "kind"), [(True, "RuntimeError"), (False, "OutOfMemoryError")])
def test_a_load_is_left_out_only_where_memory_is_short_and_needed_whole(
    large: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Looks(monkeypatch, large=True, error=WorkerFailure("OutOfMemoryError", "no", ""))
    assert asyncio.run(short.closer()) == GAIN
    assert [check.status for check in short.context.findings.checks] == [CheckStatus.SKIPPED]
    with pytest.raises(WorkerFailure):
        asyncio.run(Looks(monkeypatch, large=large, error=WorkerFailure(kind, "no", "")).closer())


def test_no_load_where_settings_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    settings = looks.context.session.settings
    judge = settings.judge.model_copy(update={"steady_load": "off"})
    looks.context.session = replace(looks.context.session, settings=settings.model_copy(update={"judge": judge}))
    assert asyncio.run(looks.closer()) == GAIN
    assert looks.noted == ["look", "on the GPU", "looked"]


def test_what_a_look_finds_is_said_with_the_speed_it_was_measured_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rejected("it races")
    looks = Looks(monkeypatch, found=found)
    assert asyncio.run(looks.closer()) == replace(found, speedup=GAIN.speedup)
    assert looks.noted[-1] == "looked", "what is refused is not run any more"


@pytest.mark.parametrize(
    ("interval", "outcome"), [((0.90, 0.97), Outcome.NOT_WORTH_IT), ((0.95, 1.02), Outcome.FASTER)]
)
def test_a_gain_that_a_steady_load_surely_takes_back_is_none(
    interval: tuple[float, float], outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {name: 1.0 for name in SustainedRun.model_fields if name not in ("case", "throttle", "interval")}
    sustained = SustainedRun.model_validate({**values, "case": "n=1", "interval": interval, "speedup": 0.95})
    looks = Looks(monkeypatch, sustained=sustained)
    ruling = asyncio.run(looks.closer())
    assert (ruling.outcome, ruling.speedup) == (outcome, GAIN.speedup)
    assert ("0.950x under a steady load" in ruling.reason) is (outcome is Outcome.NOT_WORTH_IT)
    assert looks.context.sustained == sustained


def test_a_cancelled_pair_is_cancelled_once_and_ends_first() -> None:
    ended: list[str] = []

    async def work(name: str, cleaning: float) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(cleaning)
            ended.append(name)

    async def cancelled() -> list[str]:
        pair = asyncio.create_task(both(work("quick", 0.0), work("slow", 0.02)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pair.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pair
        return list(ended)

    assert asyncio.run(cancelled()) == ["quick", "slow"]
