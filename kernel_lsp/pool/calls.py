"""Calls of lanes: work whose requests become known one by one, each with one answer."""

import asyncio
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.record import Record
from kernel_lsp.pool.protocol import LanePool, Work
from kernel_lsp.pool.queue import TaskQueue


class NumberedRecord(Record):
    """A request, which is given its number when it is asked, or its answer, which repeats it."""

    number: int = 0


RequestT = TypeVar("RequestT", bound=NumberedRecord)
AnswerT = TypeVar("AnswerT", bound=NumberedRecord)


class LaneCalls(Generic[RequestT, AnswerT]):
    """Calls of a pool's lanes. A context manager, which can be entered again: within it requests can be asked.

    Args:
        pool: of the lanes.
        work: kind of all requests; it tells one answer for each.
        say: takes a lane's name and its present activity.
    """

    def __init__(
        self, pool: LanePool, work: Work[RequestT, AnswerT], say: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        self.pool, self._work, self._say = pool, work, say
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[AnswerT]] = {}
        self._queue: TaskQueue[RequestT] | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._queue = TaskQueue((), self._fail, name=lambda request: request.number, more=True)
        self._running = asyncio.create_task(self.pool.run(self._work, self._queue, self._take, self._say))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._queue is not None, "it was entered"
        assert self._running is not None, "it was entered"
        self._queue.close()
        if error is not None:
            self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)  # who asks is told what ended it

    async def ask(self, request: RequestT) -> AnswerT:
        """Return the answer of a lane.

        Raises:
            RunnerError: lanes broke at it, or were lost, again and again.
            CannotJudgeError: no lane of the pool can be used any more.
            KernelLspError: the request cannot be answered.
        """
        assert self._queue is not None, "requests are asked within the block"
        assert self._running is not None, "requests are asked within the block"
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._queue.add(request.model_copy(update={"number": number}))
            await asyncio.wait({answer, self._running}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self._running.result()  # which raises
            return answer.result()
        finally:
            del self._waiting[number]

    def _take(self, answer: AnswerT) -> None:
        asked = self._waiting.get(answer.number)
        if asked is not None and not asked.done():
            asked.set_result(answer)

    def _fail(self, request: RequestT, error: KernelLspError) -> None:
        asked = self._waiting.get(request.number)
        if asked is not None and not asked.done():
            asked.set_exception(error)
