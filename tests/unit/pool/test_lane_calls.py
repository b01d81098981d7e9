"""Calls of lanes: each request has its answer, or what kept it from one, whatever becomes of lanes and askers."""

import asyncio
from collections import Counter

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import CannotJudgeError, RunnerError, SourceError
from kernel_lsp.pool.calls import LaneCalls, NumberedRecord
from kernel_lsp.pool.local import LocalPool
from kernel_lsp.pool.protocol import Work

pytestmark = pytest.mark.asyncio


class Word(NumberedRecord):
    text: str


class Length(NumberedRecord):
    length: int
    pool: int


tries: Counter[str] = Counter()


async def measure(lane, word, tell, _ahead):
    tries[word.text] += 1
    if word.text.startswith("break") and tries[word.text] <= int(word.text[-1]):
        raise RunnerError("its workers broke")
    if word.text == "unreadable":
        raise SourceError("There is no such word.")
    await asyncio.sleep(0)
    tell(Length(number=word.number, length=len(word.text), pool=id(lane.pool)))


MEASURE = Work(f"{__name__}:MEASURE", Word, Length, measure, lambda _: ())


@pytest.fixture
def calls():
    tries.clear()
    return LaneCalls(LocalPool((), load_settings()[0]), MEASURE)


async def test_requests_are_answered_as_they_come_by_one_lane_that_stays_open(calls):
    async with calls:
        first = await calls.ask(Word(text="a"))
        await asyncio.sleep(0.05)
        others = await asyncio.gather(*(calls.ask(Word(text="b" * n)) for n in range(5)))
    assert first.length == 1
    assert [one.length for one in others] == list(range(5))
    assert {one.pool for one in others} == {first.pool}


async def test_what_breaks_workers_is_tried_again_and_then_fails_alone(calls):
    async with calls:
        asked = [Word(text=text) for text in ("whole", "break1", "break9", "unreadable", "after")]
        found = await asyncio.gather(*map(calls.ask, asked), return_exceptions=True)
    assert [type(one) for one in found] == [Length, Length, RunnerError, SourceError, Length]
    assert (tries["break1"], tries["break9"], tries["unreadable"]) == (2, 2, 1)


async def test_it_can_be_entered_again_and_who_gave_up_disturbs_nobody(calls):
    for _ in range(2):
        async with calls:
            leaving = asyncio.create_task(calls.ask(Word(text="leaving")))
            await asyncio.sleep(0)
            leaving.cancel()
            assert (await calls.ask(Word(text="four"))).length == 4
            assert leaving.cancelled()


async def test_a_pool_without_lanes_is_told_to_all_who_ask():
    class NoLanes(LocalPool):
        async def run(self, work, queue, take, say):
            while not len(queue):
                await asyncio.sleep(0)
            raise CannotJudgeError("No lane of the pool can be used.")

    async with LaneCalls(NoLanes((), load_settings()[0]), MEASURE) as calls:
        asked = (calls.ask(Word(text=text)) for text in "ab")
        found = await asyncio.gather(*asked, return_exceptions=True)
        with pytest.raises(CannotJudgeError, match="No lane"):
            await calls.ask(Word(text="late"))
    assert [type(one) for one in found] == [CannotJudgeError, CannotJudgeError]


async def test_an_error_within_the_block_ends_the_lanes(calls):
    async def fail():
        async with calls:
            await calls.ask(Word(text="a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert asyncio.all_tasks() == {asyncio.current_task()}
