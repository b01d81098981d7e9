"""A check on other sizes that is interrupted leaves no error of its baseline's runs, which nobody awaits any more."""

import asyncio
import gc
from typing import Any

import pytest
from judge_support import fake_harness, fake_subject

from kernel_lsp.errors import RunnerError
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.inputs.other_sizes import OtherSizesCheck


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
