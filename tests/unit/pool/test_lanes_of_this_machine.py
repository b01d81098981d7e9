"""Lanes of this machine: what breaks their workers is tried once more, and ends nothing."""

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import RunnerError, SourceError
from kernel_lsp.pool.local import run_lanes
from kernel_lsp.pool.queue import TaskQueue


@pytest.mark.asyncio
async def test_what_breaks_a_pool_is_tried_again_with_another_and_then_given_up():
    seen, failed, said = [], [], []

    async def attend(lane, item):
        seen.append((item, lane.pool))
        lane.say(f"at {item}")
        if item == "fatal":
            raise RunnerError("the worker is gone")
        if item == "unreadable":
            raise SourceError("There is no such file.")

    queue = TaskQueue(("unreadable", "fatal", "whole"), lambda item, error: failed.append((item, str(error))))
    await run_lanes(queue, (), load_settings()[0], attend, lambda *words: said.append(words))
    assert [item for item, _ in seen] == ["unreadable", "fatal", "fatal", "whole"]
    assert failed == [("unreadable", "There is no such file."), ("fatal", "the worker is gone")]
    pools = [pool for _, pool in seen]
    assert pools[0] is pools[1]
    assert len({id(pool) for pool in pools}) == 3
    assert said[-1] == ("emulator", "done")


@pytest.mark.asyncio
async def test_an_error_that_nobody_foresaw_ends_nothing():
    failed = []

    async def attend(lane, item):
        if item == "strange":
            raise KeyError("0/c029d183@0")

    queue = TaskQueue(("strange", "whole"), lambda item, error: failed.append((item, str(error))))
    await run_lanes(queue, (), load_settings()[0], attend, lambda *_: None)
    assert failed == [("strange", "this program broke on it: KeyError: '0/c029d183@0'")]
    assert queue.finished
