"""What is used next is opened beside what is in use, as far as there is memory, and no lane opens what another does."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from kernel_lsp.errors import NoRoomError, RunnerError, WorkloadError
from kernel_lsp.pool.kept import Kept
from kernel_lsp.pool.queue import TaskQueue

pytestmark = pytest.mark.asyncio


class Desk:
    """Opens names after a while, and writes down when; `most` fit into memory, which is found out while one opens."""

    def __init__(self, most: int = 9, room: Callable[[], float] = lambda: 1.0) -> None:
        self.log: list[str] = []
        self.most, self.open = most, 0
        self.kept = Kept[str](room, lambda _: True)

    def opened(self, name: str) -> Callable[[], AbstractAsyncContextManager[str]]:
        @asynccontextmanager
        async def opening() -> AsyncGenerator[str]:
            self.log.append(f"open {name}")
            await asyncio.sleep(0.01)
            if self.open == self.most:
                self.log.append(f"no room for {name}")
                raise NoRoomError("it does not fit")
            self.open += 1
            self.log.append(f"+{name}")
            try:
                yield name
            finally:
                self.open -= 1
                self.log.append(f"-{name}")

        return opening

    async def judge(self, name: str, following: str = "", seconds: float = 0.05) -> None:
        """Use a name once, and foresee the one that follows."""
        async with self.kept.using(name, self.opened(name), keep=False):
            if following:
                self.kept.foresee(following, self.opened(following))
            self.log.append(f"judge {name}")
            await asyncio.sleep(seconds)
            self.log.append(f"judged {name}")


async def test_the_next_one_opens_while_this_one_is_used_and_is_there_when_its_turn_comes() -> None:
    desk = Desk()
    async with desk.kept, asyncio.timeout(10):
        await desk.judge("a", "b")
        await desk.judge("b")
    ahead = ["open a", "+a", "judge a", "open b", "+b", "judged a", "-a"]
    assert desk.log == [*ahead, "judge b", "judged b", "-b"]


async def test_it_waits_where_it_does_not_fit_beside_what_is_used() -> None:
    desk = Desk(most=1)
    async with desk.kept, asyncio.timeout(10):
        await desk.judge("a", "b")
        await desk.judge("b")
    ahead = ["open a", "+a", "judge a", "open b", "no room for b", "judged a", "-a"]
    assert desk.log == [*ahead, "open b", "+b", "judge b", "judged b", "-b"]


async def test_it_is_not_begun_where_memory_is_short() -> None:
    desk = Desk()
    desk.kept = Kept[str](lambda: 1.0 - desk.open, lambda _: True)
    async with desk.kept, asyncio.timeout(10):
        await desk.judge("a", "b")
        await desk.judge("b")
    ahead = ["open a", "+a", "judge a", "judged a", "-a"]
    assert desk.log == [*ahead, "open b", "+b", "judge b", "judged b", "-b"]


async def test_what_does_not_fit_alone_is_an_error_of_its_use() -> None:
    desk = Desk(most=0)
    async with desk.kept, asyncio.timeout(10):
        with pytest.raises(NoRoomError):
            await desk.judge("a")


async def test_an_error_of_what_is_opened_ahead_is_told_when_it_is_used() -> None:
    desk = Desk()

    @asynccontextmanager
    async def broken() -> AsyncGenerator[str]:
        desk.log.append("broken")
        raise WorkloadError("it is none")
        yield ""

    async with desk.kept, asyncio.timeout(10):
        async with desk.kept.using("a", desk.opened("a")):
            desk.kept.foresee("b", broken)
            await asyncio.sleep(0.02)
        with pytest.raises(WorkloadError, match="it is none"):
            async with desk.kept.using("b", broken):
                pass
    assert desk.log.count("broken") == 2


async def test_what_is_being_opened_ahead_ends_with_the_lane() -> None:
    desk = Desk()
    async with desk.kept, asyncio.timeout(10):
        await desk.judge("a", "b", seconds=0.0)
    assert "+b" not in desk.log
    assert desk.open == 0


async def test_lanes_prepare_different_tasks_and_who_is_free_first_takes_what_is_left() -> None:
    queue = TaskQueue("abcde", lambda *_: None)
    assert [await queue.next("one"), await queue.next("two")] == ["a", "b"]
    assert [queue.ahead("one", "a"), queue.ahead("two", "b")] == ["c", "d"]
    assert queue.ahead("one", "a") == "c", "asked again"
    assert await queue.next("two") == "d"
    assert queue.ahead("two", "d") == "e"
    assert await queue.next("three") == "c", "nothing else waits"
    assert queue.ahead("one", "a") is None
    assert [await queue.next("two"), len(queue)] == ["e", 0]


async def test_nothing_is_prepared_beside_a_task_that_broke_a_lane() -> None:
    queue = TaskQueue("abc", lambda *_: None, name=str)

    async def breaks() -> None:
        raise RunnerError("the GPU has too little memory free")

    first = await queue.next("one")
    assert first == "a"
    assert queue.ahead("one", first) == "b"
    assert not await queue.attempt(first, breaks())
    assert await queue.next("one") == "b", "what was foreseen comes first"
    assert queue.ahead("one", "b") == "a"
    again = await queue.next("one")
    assert again == "a"
    assert queue.ahead("one", again) is None, "it was not to blame, perhaps"
    assert await queue.attempt(again, asyncio.sleep(0))
