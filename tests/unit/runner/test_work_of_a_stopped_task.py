"""What fails while its task is stopped is no finding."""

import asyncio

import pytest

from kernel_lsp.runner.shield import to_the_end
from kernel_lsp.runner.worker import WorkerDied


async def gone() -> None:
    raise WorkerDied("the oracle process ended during `Detach`")


async def until_stopped() -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await to_the_end(gone())


async def stopped() -> None:
    task = asyncio.create_task(until_stopped())
    await asyncio.sleep(0)
    task.cancel()
    await task


def test_a_clean_up_that_fails_does_not_hide_that_its_task_was_stopped() -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stopped())


def test_what_fails_otherwise_is_told() -> None:
    with pytest.raises(WorkerDied):
        asyncio.run(to_the_end(gone()))
