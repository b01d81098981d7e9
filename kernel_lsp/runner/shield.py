"""Work that goes on when whoever waits for it stops waiting, and work that must not."""

import asyncio
from collections.abc import Coroutine
from typing import Never, TypeVar

_T = TypeVar("_T")
_U = TypeVar("_U")


def start(work: Coroutine[object, Never, _T]) -> "asyncio.Task[_T]":
    """A task that nobody need look after: an error in it that nobody waits for any more is not reported."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def to_the_end(work: Coroutine[object, Never, _T]) -> _T:
    """Await `work`; being cancelled meanwhile does not cancel it."""
    return await asyncio.shield(start(work))


async def both(one: Coroutine[object, Never, _T], other: Coroutine[object, Never, _U]) -> tuple[_T, _U]:
    """Await two works side by side; where one fails or the wait is cancelled, the other is ended first.

    `asyncio.gather` leaves the other running then, or comes back before it has cleaned up.
    """
    first, second = start(one), start(other)
    try:
        done, _ = await asyncio.wait((first, second), return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in (first, second):
            task.cancel()
        await asyncio.wait((first, second))
    for task in done:
        task.result()  # raises what failed, not that the other was cancelled for it
    return first.result(), second.result()
