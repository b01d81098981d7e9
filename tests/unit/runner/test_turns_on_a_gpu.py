"""Sessions on one GPU: while one times, all others wait; what does not time goes side by side."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kernel_lsp.runner.turns import GpuTurns, SessionTurns

pytestmark = pytest.mark.asyncio


class Log(list[str]):
    """Events in their order."""

    async def work(self, name: str, until: Awaitable[object]) -> None:
        """Begin, wait, and end."""
        self.append(f"+{name}")
        await until
        self.append(f"-{name}")


def two() -> tuple[SessionTurns, SessionTurns]:
    turns = GpuTurns()
    return SessionTurns(turns), SessionTurns(turns)


async def piece(session: SessionTurns, log: Log, name: str, seconds: float = 0.02) -> None:
    async with session.piece():
        await log.work(name, asyncio.sleep(seconds))


async def alone(session: SessionTurns, log: Log, name: str, seconds: float = 0.02) -> None:
    async with session.alone():
        await log.work(name, asyncio.sleep(seconds))


async def in_order(*works: Callable[[], Awaitable[None]]) -> None:
    """Start works one after another, without waiting for any to end, and then wait for all."""

    async def run(work: Callable[[], Awaitable[None]]) -> None:
        await work()

    tasks: list[asyncio.Task[None]] = []
    for work in works:
        tasks.append(asyncio.create_task(run(work)))
        await asyncio.sleep(0.005)
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks)


async def test_pieces_go_side_by_side_and_what_times_waits_for_them_and_is_alone() -> None:
    (one, other), log = two(), Log()
    await in_order(
        lambda: piece(one, log, "a"),
        lambda: piece(other, log, "b", 0.04),
        lambda: alone(one, log, "time"),
        lambda: piece(other, log, "c"),
    )
    assert log == ["+a", "+b", "-a", "-b", "+time", "-time", "+c", "-c"]


async def test_one_times_at_a_time() -> None:
    (one, other), log = two(), Log()
    await in_order(lambda: alone(one, log, "a"), lambda: alone(other, log, "b"))
    assert log == ["+a", "-a", "+b", "-b"]


async def test_work_of_the_session_that_times_does_not_wait_for_it_even_if_it_was_asked_for_before() -> None:
    (one, other), log = two(), Log()
    late: list[asyncio.Task[None]] = []

    async def timed() -> None:
        async with one.alone():
            late.append(asyncio.create_task(piece(one, log, "late")))
            async with one.alone():
                await log.work("within", piece(one, log, "piece"))
            await late[0]

    await in_order(
        lambda: piece(other, log, "other", 0.05),
        timed,
        lambda: piece(one, log, "early"),
        lambda: piece(other, log, "x"),
    )
    assert log[:2] == ["+other", "-other"]
    assert log[-2:] == ["+x", "-x"]
    assert {"+late", "+piece", "+early"} <= set(log[2:-2])


async def test_waiting_for_a_turn_takes_none_of_a_sessions_time() -> None:
    (one, other), log = two(), Log()
    began = other.clock()
    await in_order(lambda: alone(one, log, "long", 0.3), lambda: piece(other, log, "short", 0.02))
    assert other.clock() - began < 0.2


async def test_a_part_of_an_opening_is_in_quiet_until_the_session_is_open() -> None:
    turns, log = GpuTurns(), Log()
    one = SessionTurns(turns)
    judging, judged = asyncio.Event(), asyncio.Event()

    async def judge() -> None:
        async with turns.measuring:
            judging.set()
            await log.work("judge", judged.wait())

    async def opening() -> None:
        with one.opening():
            await judging.wait()
            await piece(one, log, "inputs")
            assert one.disturbed
            judged.set()
            await one.quieten()
            assert not one.disturbed
            await one.quieten()
            log.append("quiet")
            assert turns.measuring.locked()
        assert not turns.measuring.locked()

    await in_order(judge, opening)
    assert log == ["+judge", "+inputs", "-inputs", "-judge", "quiet"]


async def test_only_what_opens_asks_for_quiet() -> None:
    turns = GpuTurns()
    await SessionTurns(turns).quieten()
    assert not turns.measuring.locked()


async def test_memory_is_reserved_until_a_session_leaves() -> None:
    one, other = two()
    assert other.others is None
    one.reserve(60, 100)
    assert one.others is None, "it does not stand beside itself"
    assert other.others == (100, 60)
    one.leave()
    assert other.others is None


async def test_where_nothing_is_timed_nobody_waits() -> None:
    one, log = SessionTurns(None), Log()
    await in_order(lambda: alone(one, log, "a"), lambda: piece(one, log, "b"))
    assert log == ["+a", "+b", "-a", "-b"]
    await one.quieten()
    assert not one.disturbed
