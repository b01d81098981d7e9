"""The protocol of pools: a driver has a queue of requests, lanes answer them in parts, the driver keeps each part.

A request may be answered twice in part, when a lane is lost, so its parts have content addresses. Lanes keep nothing:
what they find is told to the driver, which alone writes ledger and store.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.record import Record
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.queue import TaskQueue

RequestT = TypeVar("RequestT", bound=Record)
AnswerT = TypeVar("AnswerT", bound=Record)


@dataclass(frozen=True, slots=True)
class Work(Generic[RequestT, AnswerT]):
    """One kind of work, defined at the top of a module.

    Attributes:
        name: its module and name there, `module:NAME`, by which another process finds it.
        request: type of the requests.
        answer: type of the answers.
        attend: answers a request in a lane: is given the lane, the request, a function that takes each answer as soon
            as it is known, and the request that probably comes next, which it may prepare.
        files: returns the files of this machine that the lane has to see for a request.
    """

    name: str
    request: type[RequestT]
    answer: type[AnswerT]
    attend: Callable[[Lane, RequestT, Callable[[AnswerT], None], RequestT | None], Awaitable[None]]
    files: Callable[[RequestT], Iterable[Path]]


class LanePool(Protocol):
    """Lanes of one kind: verdicts of different GPUs or compilers cannot be compared."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return GPUs of the lanes, of one kind; empty for the emulator."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the versions of compilers and libraries, the same in all lanes."""
        ...

    async def run(
        self,
        work: Work[RequestT, AnswerT],
        queue: TaskQueue[RequestT],
        take: Callable[[AnswerT], None],
        say: Callable[[str, str], None],
    ) -> None:
        """Do all of the queue.

        Args:
            work: the kind of all its requests.
            queue: the requests; what cannot be answered is failed there.
            take: keeps an answer, in this process.
            say: takes a lane's name and what it does.

        Raises:
            CannotJudgeError: no lane can be used any more.
        """
        ...

    def rest(self) -> None:
        """Leave the memory of GPUs to others, between two runs; the next run starts what it needs."""
        ...
