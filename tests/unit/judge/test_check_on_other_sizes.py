"""A check on other sizes says what kept it from being made, and leaves no error that nobody awaits."""

import asyncio
import gc
from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from judge_support import draw, fake_harness, fake_subject

from kernel_lsp import policy
from kernel_lsp.errors import NotBuiltError, RunnerError, WorkloadError
from kernel_lsp.judge.inputs import drawing, other_sizes
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.inputs.other_sizes import OtherSizesCheck
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import CheckStatus, Outcome
from kernel_lsp.runner.messages.oracle import OtherSizes
from kernel_lsp.runner.messages.oracle_answers import Compared, OutputDistance
from kernel_lsp.runner.messages.subject_answers import PublishedOutputs, Ran
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import WorkerTimedOut

LOADING: dict[str, Any] = {"enter": AsyncMock(return_value=fake_subject()), "leave": AsyncMock()}


def test_the_error_of_a_run_that_nobody_awaits_is_not_printed() -> None:
    async def interrupted() -> list[str]:
        heard: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: heard.append(told["message"]))
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def oracle(_request: object) -> Any:
            asked.set()
            await may_answer.wait()
            raise RunnerError("the oracle is gone")

        check = OtherSizesCheck(fake_harness(oracle=oracle, **LOADING), fake_subject())
        waiting = asyncio.create_task(check.check(fake_subject(), Findings()))
        await asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        may_answer.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del check, waiting
        gc.collect()  # asyncio complains when it forgets a task whose error nobody has seen
        return heard

    assert asyncio.run(interrupted()) == []


def test_who_waits_for_it_hears_of_it() -> None:
    async def failed(_request: object) -> Any:
        raise RunnerError("the oracle is gone")

    check = OtherSizesCheck(fake_harness(oracle=failed, **LOADING), fake_subject())
    with pytest.raises(RunnerError, match="the oracle is gone"):
        asyncio.run(check.check(fake_subject(), Findings()))


def test_a_check_that_could_not_be_made_is_said_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulator that does not start would else look like one that found nothing."""

    async def oracle(_request: object) -> tuple[str, ...]:
        return ("n=5",)

    async def enter(*_: object) -> Subject:
        return fake_subject(worker=SimpleNamespace(alive=True))

    monkeypatch.setattr(drawing, "draw", AsyncMock(side_effect=WorkerFailure("ImportError", "no emulator", "")))
    harness = fake_harness(oracle=oracle, enter=enter, leave=AsyncMock())
    findings = Findings()
    assert asyncio.run(OtherSizesCheck(harness, fake_subject()).check(fake_subject(), findings)) is None
    (check,) = findings.checks
    assert check.status is CheckStatus.SKIPPED
    assert check.detail == "the kernel as it stands was run on none: ImportError: no emulator"


class Growing(SimpleNamespace):
    """A harness to whose workload cases are added."""

    @property
    def cases(self) -> tuple[str, ...]:
        return self.workload.cases


class OnGpu:
    """A harness on a GPU, whose baseline is right on two sizes near the largest of three, and notes what is asked."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, wrong: str = "", error: Exception | None = None, gpu: object = True
    ) -> None:
        self.noted: list[str] = []
        self._wrong, self._error, self.entered = wrong, error, 0
        monkeypatch.setattr(drawing, "draw", self._draw)
        parts: dict[str, object] = {"oracle": self._oracle, "enter": self._enter, "leave": self._leave}
        parts |= {"fill": AsyncMock(), "unbind": self._unbind, "compare": self._compare}
        known = {name: value for name, value in vars(fake_harness(gpu=gpu, **parts)).items() if name != "cases"}
        self.harness: Any = Growing(**known)

    def check(self) -> tuple[Any, Findings]:
        findings = Findings()
        check = OtherSizesCheck(self.harness, fake_subject(name="A"))
        return asyncio.run(check.check(fake_subject(name="B"), findings)), findings

    async def _oracle(self, request: object) -> tuple[str, ...]:
        assert isinstance(request, OtherSizes)
        self.noted.append("near" if request.near else "small")
        return ("n=97", "n=101", "n=103")

    async def _draw(self, _harness: object, case: int, _family: str) -> Any:
        return draw(case)

    async def _enter(self, *_: object) -> Subject:
        self.entered += 1
        ask = self._fail if self._error is not None and self.entered == 1 else self._ask
        return fake_subject(SimpleNamespace(alive=True, ask=ask), name="BA"[self.entered - 1])

    async def _leave(self, version: Subject) -> None:
        self.noted.append(f"left {version.name}")

    async def _unbind(self, version: Subject, buffer: str) -> None:
        self.noted.append(f"{version.name} {buffer.partition('/')[0]}")

    async def _ask(self, _request: object, *, deadline: float) -> Ran:
        return Ran(PublishedOutputs((), ()), (), (), (), False, None, ())

    async def _fail(self, _request: object, *, deadline: float) -> Ran:
        assert self._error is not None
        raise self._error

    async def _compare(self, version: Subject, inputs: Any, _published: object, *, baseline: bool = False) -> Compared:
        assert baseline is (version.name == "A")
        bad = self.harness.cases[inputs.case] == ("n=103" if baseline else self._wrong)
        index = (5,) if bad else None
        return Compared(distances=(OutputDistance(max=1e9, rms=1e9, wrong=1, total=9, index=index, allowed=4.0),))


def test_on_a_gpu_sizes_are_near_the_largest_and_each_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = OnGpu(monkeypatch)
    ruling, findings = gpu.check()
    assert ruling is None
    assert [(check.status, check.case) for check in findings.checks] == [
        (CheckStatus.PASSED, "n=97"),
        (CheckStatus.PASSED, "n=101"),
    ], "on the third the kernel as it stands is wrong"
    assert gpu.noted == ["near", "A 4", "A 5", "A 6", "left A", "B 4", "B 5", "left B"], "B waits, loaded"


def test_sizes_that_the_kernel_as_it_stands_left_no_time_for_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "OTHER_SIZES_SECONDS", -1.0)
    _, findings = OnGpu(monkeypatch).check()
    assert [(check.status, check.case) for check in findings.checks] == [
        (CheckStatus.SKIPPED, "n=97"),
        (CheckStatus.SKIPPED, "n=101"),
        (CheckStatus.SKIPPED, "n=103"),
    ]


def test_what_is_wrong_there_is_refused_with_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    ruling, _ = OnGpu(monkeypatch, wrong="n=101").check()
    assert ruling.outcome is Outcome.WRONG
    assert "n=101" in ruling.reason
    assert "a size that CASES does not name" in ruling.reason


@pytest.mark.parametrize(
    ("error", "gpu", "outcome"),
    [
        (WorkloadError("`launch` returned a NoneType as output 0, not a plain tensor"), True, Outcome.RUN_FAILED),
        (WorkloadError("`launch` asks for a kernel `k` that the file does not have"), None, Outcome.RUN_FAILED),
        (WorkerFailure("ValueError", "no such size", ""), True, Outcome.RUN_FAILED),
        (WorkerTimedOut("it did not finish in 60.0 s"), True, Outcome.TIMED_OUT),
        (WorkerTimedOut("it did not finish in 8.0 s"), None, None),  # the emulator may be slow
        (NotBuiltError("`launch` asks for a kernel `k<97>` that the file does not have"), True, None),
    ],
)
def test_who_does_not_manage_a_size_is_not_spared_it(
    error: Exception, gpu: object, outcome: Outcome | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an answer that is none, or a kernel that is not there, would keep a candidate from being looked at."""
    ruling, findings = OnGpu(monkeypatch, error=error, gpu=gpu).check()
    assert (ruling and ruling.outcome) == outcome
    status = CheckStatus.SKIPPED if outcome is None else CheckStatus.FAILED
    assert {check.status for check in findings.checks} == {status}


@pytest.mark.parametrize(("gpu", "ran"), [(None, [0, 2]), (object(), [0, 1, 2])])
def test_a_candidate_is_spared_a_size_that_keeps_the_emulator_long(
    gpu: object, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU a run may take long because Triton compiles for the size."""
    ours: list[int] = []

    async def run(_check: object, _subject: object, of: Draw, *, baseline: bool = False) -> other_sizes._Ran:
        if not baseline:
            ours.append(of.case)
        return other_sizes._Ran(None, 1.5 if of.case == 1 else 0.1)

    async def drawn(_harness: object, case: int, _family: str) -> Draw:
        return draw(case)

    async def named(_request: object) -> tuple[str, ...]:
        return "n=5", "n=8191", "n=7"

    monkeypatch.setattr(OtherSizesCheck, "_run", run)
    monkeypatch.setattr(drawing, "draw", drawn)
    version = fake_subject(worker=SimpleNamespace(alive=True))
    cases = defaultdict[int, str](str)
    harness = fake_harness(oracle=named, enter=AsyncMock(return_value=version), leave=AsyncMock(), gpu=gpu, cases=cases)
    asyncio.run(OtherSizesCheck(harness, version).check(version, Findings()))
    assert ours == ran
