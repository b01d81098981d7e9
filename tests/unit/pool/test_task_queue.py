"""The queue of a pool: nothing is lost, nothing is done twice, and what loses lanes is given up alone."""

import asyncio

import pytest

from kernel_lsp.errors import RunnerError, SourceError
from kernel_lsp.pool.queue import LANES_LOST, LaneLostError, TaskQueue


class Desk:
    """Groups of words as tasks; `bad` words end the lane that comes to them."""

    def __init__(self, *groups: str, bad: str = "", error: type = LaneLostError) -> None:
        self.done, self.failed, self.given = [], [], []
        self.bad, self.error = bad, error
        self.queue = TaskQueue([tuple(group) for group in groups], self.fail, rest=self.rest, name=lambda task: task)

    def rest(self, task):
        left = tuple(part for part in task if part not in self.done and part not in self.failed)
        return left[:1] or None, left[1:] or None

    def fail(self, task, error):
        self.failed += task

    async def attend(self, task):
        self.given.append("".join(task))
        for part in task:
            await asyncio.sleep(0)
            if part in self.bad:
                raise self.error("it is gone")
            self.done.append(part)

    async def lane(self):
        """Take tasks until all are done; a lane that is lost is followed by another."""
        while (task := await self.queue.next()) is not None:
            await self.queue.attempt(task, self.attend(task))


@pytest.mark.asyncio
@pytest.mark.parametrize("lanes", [1, 3])
async def test_what_ends_its_lanes_is_given_up_alone(lanes):
    desk = Desk("abc", "def", bad="b")
    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(desk.lane())
    assert (sorted(desk.done), desk.failed) == (["a", "c", "d", "e", "f"], ["b"])
    assert [given for given in desk.given if "b" in given] == ["abc"] + ["b"] * (LANES_LOST - 1)
    assert desk.queue.finished


@pytest.mark.asyncio
async def test_broken_workers_are_replaced_once():
    desk = Desk("ab", bad="a", error=RunnerError)
    await desk.lane()
    assert (desk.given, desk.failed) == (["ab", "a", "b"], ["a"])


@pytest.mark.asyncio
async def test_a_task_that_cannot_be_used_is_not_tried_again():
    desk = Desk("ab", "c", bad="a", error=SourceError)
    await desk.lane()
    assert (desk.given, sorted(desk.failed), desk.done) == (["ab", "c"], ["a", "b"], ["c"])


@pytest.mark.asyncio
async def test_a_lane_without_a_task_waits_for_what_another_may_lose():
    desk = Desk("a")
    task = await desk.queue.next()
    waiting = asyncio.create_task(desk.queue.next())
    await asyncio.sleep(0)
    assert not waiting.done()

    async def lost():
        raise LaneLostError("it is gone")

    assert not await desk.queue.attempt(task, lost())
    again = await waiting
    assert again == ("a",)
    assert await desk.queue.attempt(again, desk.attend(again))
    assert await desk.queue.next() is None
    assert (desk.done, desk.failed) == (["a"], [])
