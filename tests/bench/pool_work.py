"""Tasks that only sleep, for `pool_simulate`. Imports no more than a lane does: many processes import it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from kernel_lsp.judge.record import Record
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.protocol import Work


class Nap(Record):
    """A request: the keys of its tasks, how long each sleeps in seconds, and the answer to give."""

    keys: tuple[str, ...]
    seconds: tuple[float, ...]
    verdict: Path


class Rested(Record):
    """A verdict under the task's key, and when the lane began and ended, in seconds of the monotonic clock."""

    verdict: Verdict
    lane: str
    began: float
    ended: float


async def rest(lane: Lane, request: Nap, tell: Callable[[Rested], None], _ahead: Nap | None) -> None:
    """Sleep, and answer with a verdict."""
    verdict = Verdict.model_validate_json(request.verdict.read_text())
    for key, seconds in zip(request.keys, request.seconds, strict=True):
        began = time.monotonic()
        await asyncio.sleep(seconds)
        answer = verdict.model_copy(update={"id": key})
        tell(Rested(verdict=answer, lane=lane.where.lane, began=began, ended=time.monotonic()))


REST = Work(f"{__name__}:REST", Nap, Rested, rest, lambda _: ())
