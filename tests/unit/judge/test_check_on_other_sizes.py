"""A check on other sizes says what kept it from being made, and leaves no error that nobody awaits."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from judge_support import fake_harness, fake_subject

from kernel_lsp.errors import RunnerError
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.inputs.other_sizes import OtherSizesCheck
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import CheckStatus
from kernel_lsp.runner.protocol import WorkerFailure


def test_the_error_of_a_run_that_nobody_awaits_is_not_printed() -> None:
    async def interrupted() -> list[str]:
        heard: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: heard.append(told["message"]))
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def oracle(_request: object) -> Any:
            asked.set()
            await may_answer.wait()
            raise RunnerError("the oracle is gone")

        check = OtherSizesCheck(fake_harness(oracle=oracle), fake_subject())
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

    check = OtherSizesCheck(fake_harness(oracle=failed), fake_subject())
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
