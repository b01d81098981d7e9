"""Work that goes on when whoever waits for it stops waiting."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def start(work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
    """A task that nobody need look after: an error in it that nobody waits for any more is not reported."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`; being cancelled meanwhile does not cancel it."""
    return await asyncio.shield(start(work))
