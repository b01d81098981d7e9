"""Environments stay open from step to step, the latest of them, as far as there is memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_lsp.learn import kept
from kernel_lsp.learn.kept import MOST, KeptEnvironments

pytestmark = pytest.mark.asyncio


class Opened:
    """Counts what is opened and closed in place of a judge's sessions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        monkeypatch.setattr(kept, "open_environment", self.open)

    @asynccontextmanager
    async def open(self, target: Any, *_: Any) -> AsyncGenerator[SimpleNamespace]:
        self.log.append(f"+{target}")
        yield SimpleNamespace(whole=True, name=target)
        self.log.append(f"-{target}")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def environments(room: float = 1.0) -> KeptEnvironments:
    nothing: Any = None
    return KeptEnvironments(nothing, nothing, lambda: nothing, lambda: room)


async def of(some: KeptEnvironments, *keys: str) -> list[Any]:
    return [await some.of(key, key, None) for key in keys]  # pyright: ignore[reportArgumentType]


async def test_one_is_opened_once(opened: Opened) -> None:
    async with environments() as some:
        first, _, again = await of(some, "a", "b", "a")
        assert again is first
        assert opened.log == ["+a", "+b"]
    assert opened.log == ["+a", "+b", "-b", "-a"], "the latest was asked for last"


async def test_the_one_that_was_not_asked_for_longest_makes_room(opened: Opened) -> None:
    async with environments() as some:
        await of(some, *map(str, range(MOST)), "0", "new")
        assert opened.log[-2:] == ["-1", "+new"]


async def test_where_memory_is_short_only_one_stays(opened: Opened) -> None:
    async with environments(room=0.1) as some:
        await of(some, "a", "b", "a")
    assert opened.log == ["+a", "-a", "+b", "-b", "+a", "-a"]


async def test_one_that_can_judge_no_more_is_opened_anew(opened: Opened) -> None:
    async with environments() as some:
        [broken] = await of(some, "a")
        broken.whole = False
        [other] = await of(some, "a")
        assert other is not broken
    assert opened.log == ["+a", "-a", "+a", "-a"]
