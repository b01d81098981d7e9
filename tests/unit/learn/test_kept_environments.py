"""Environments stay open from step to step, the latest of them, as far as there is memory."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.learn.judges import Judges
from kernel_lsp.learn.kept import KeptEnvironments
from kernel_lsp.pool.kept import MOST

pytestmark = pytest.mark.asyncio


class Opened:
    """Counts what is opened and closed in place of a judge's sessions."""

    def __init__(self, room: float = 1.0) -> None:
        self.log: list[str] = []
        self._room = room

    @asynccontextmanager
    async def open(self, target: Any, *_: Any) -> AsyncGenerator[SimpleNamespace]:
        self.log.append(f"+{target}")
        yield SimpleNamespace(whole=True, name=target)
        self.log.append(f"-{target}")

    def room(self) -> float:
        return self._room

    async def rest(self) -> None:
        self.log.append("rest")


def environments(opened: Opened) -> KeptEnvironments:
    return KeptEnvironments(cast("Judges", opened))


def using(some: KeptEnvironments, key: str) -> AbstractAsyncContextManager[Any]:
    return some.using(key, key, None)  # pyright: ignore[reportArgumentType]


async def of(some: KeptEnvironments, *keys: str) -> list[Any]:
    """Return the environments of some kernels, used one after another."""
    found: list[Any] = []
    for key in keys:
        async with using(some, key) as one:
            found.append(one)
    return found


async def test_one_is_opened_once() -> None:
    opened = Opened()
    async with environments(opened) as some:
        first, _, again = await of(some, "a", "b", "a")
        assert again is first
        assert opened.log == ["+a", "+b"]
    assert opened.log == ["+a", "+b", "-b", "-a"], "the latest was asked for last"


async def test_the_one_that_was_not_asked_for_longest_makes_room() -> None:
    opened = Opened()
    async with environments(opened) as some:
        await of(some, *map(str, range(MOST)), "0", "new")
        assert opened.log[-2:] == ["-1", "+new"]


async def test_where_memory_is_short_only_one_stays() -> None:
    opened = Opened(room=0.1)
    async with environments(opened) as some:
        await of(some, "a", "b", "a")
    assert opened.log == ["+a", "-a", "+b", "-b", "+a", "-a"]


async def test_one_that_can_judge_no_more_is_opened_anew() -> None:
    opened = Opened()
    async with environments(opened) as some:
        [broken] = await of(some, "a")
        broken.whole = False
        [other] = await of(some, "a")
        assert other is not broken
    assert opened.log == ["+a", "-a", "+a", "-a"]


async def test_several_are_used_side_by_side() -> None:
    opened = Opened()
    inside, all_in = 0, asyncio.Event()
    async with environments(opened) as some:

        async def use(key: str) -> None:
            nonlocal inside
            async with using(some, key):
                inside += 1
                if inside == 3:
                    all_in.set()
                await all_in.wait()

        async with asyncio.timeout(10):
            await asyncio.gather(*map(use, "abc"))
    assert opened.log[:3] == ["+a", "+b", "+c"]


async def test_one_that_is_used_is_not_closed_for_another() -> None:
    opened = Opened(room=0.1)
    waits, done = asyncio.Event(), asyncio.Event()
    async with environments(opened) as some:

        async def hold() -> None:
            async with using(some, "a"):
                waits.set()
                await done.wait()

        async def second() -> None:
            await waits.wait()
            async with using(some, "b"):
                pass

        both = asyncio.gather(hold(), second())
        await waits.wait()
        await asyncio.sleep(0.05)
        assert opened.log == ["+a"], "there is no room for another"
        done.set()
        async with asyncio.timeout(10):
            await both
    assert opened.log == ["+a", "-a", "+b", "-b"]


async def test_what_is_open_is_used_while_another_one_opens() -> None:
    opened, open_now = Opened(), asyncio.Event()
    inside = opened.open

    @asynccontextmanager
    async def slow(target: Any, *_: Any) -> AsyncGenerator[SimpleNamespace]:
        if target == "b":
            await open_now.wait()
        async with inside(target) as one:
            yield one

    opened.open = slow  # pyright: ignore[reportAttributeAccessIssue]
    async with environments(opened) as some, asyncio.timeout(10):
        await of(some, "a")
        opening = asyncio.create_task(of(some, "b"))
        await asyncio.sleep(0.02)
        await of(some, "a")
        assert opened.log == ["+a"]
        open_now.set()
        await opening
    assert opened.log[:2] == ["+a", "+b"]
