"""Run work to its end although the waiting task is cancelled, or end parallel work together."""

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from typing import Any, Never, TypeVar

_T = TypeVar("_T")
_U = TypeVar("_U")


def start(work: Coroutine[object, Never, _T]) -> "asyncio.Task[_T]":
    """Return a task whose errors are not reported if nobody awaits it."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def to_the_end(work: Coroutine[object, Never, _T]) -> _T:
    """Await `work`; cancelling the wait does not cancel the work.

    Raises:
        asyncio.CancelledError: the wait was cancelled; or the task is being cancelled, and this work of its clean-up
            failed, for what it needs is ended beside it.
    """
    try:
        return await asyncio.shield(start(work))
    except Exception as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise


async def together(works: Iterable[Coroutine[object, Never, _T]]) -> list[_T]:
    """Await coroutines side by side; if one fails or the wait is cancelled, the others are cancelled first.

    `asyncio.gather` would leave the others running, or return before their clean-up is over.
    """
    tasks = [start(work) for work in works]
    await _all_of(tasks)
    return [task.result() for task in tasks]


async def both(one: Coroutine[object, Never, _T], other: Coroutine[object, Never, _U]) -> tuple[_T, _U]:
    """Await two coroutines side by side, as `together` does."""
    first, second = start(one), start(other)
    await _all_of((first, second))
    return first.result(), second.result()


async def _all_of(tasks: "Collection[asyncio.Task[Any]]") -> None:
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()  # raises the original failure, not the cancellation that it caused
