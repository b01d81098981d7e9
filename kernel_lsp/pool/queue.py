"""The queue that lanes take tasks from: what a lost lane had is given again, and what loses lanes is given up."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kernel_lsp.errors import KernelLspError, RunnerError, as_ours
from kernel_lsp.runner.pool import ATTEMPTS

UNFIT_SECONDS = 30.0
"""Time for which a lane is left alone whose GPU is not fit to measure on."""
LANES_LOST = 3
"""Lanes that may be lost on one task: a machine may end by itself, but hardly three times during the same task."""

_LOOK_SECONDS = 0.5
T = TypeVar("T")


class LaneLostError(RunnerError):
    """A lane ended in the middle of a task: its process, its machine, or the network between."""


@dataclass
class LaneUnfitError(RunnerError):
    """A lane's GPU is not fit to measure on, and no task was begun; `lasting` is True if that will not pass."""

    lasting: bool = False


def left_alone(error: LaneUnfitError) -> str:
    """Return what is said of a lane whose GPU is not fit."""
    return f"left alone{'' if error.lasting else f' for {UNFIT_SECONDS:.0f} s'}: {error.message}"


def _among(task: object, tasks: Iterable[object]) -> bool:
    return any(one is task for one in tasks)


def _whole(task: T) -> tuple[T, None]:
    return task, None


class TaskQueue(Generic[T]):
    """Tasks for several lanes; each is done once, or failed once.

    Args:
        tasks: in the order in which they are given out.
        fail: called with a task that is given up, and the reason.
        rest: returns the part of a task that was under way when its lane broke, and the part that had not begun; None
            for a part that does not exist. By default all of a task is under way.
        name: returns a hashable name, under which attempts are counted.
        more: True if tasks may be added until it is closed.
    """

    def __init__(
        self,
        tasks: Iterable[T],
        fail: Callable[[T, KernelLspError], None],
        *,
        rest: Callable[[T], tuple[T | None, T | None]] = _whole,
        name: Callable[[T], Hashable] = id,
        more: bool = False,
    ) -> None:
        self._waiting = deque(tasks)
        self._fail, self._rest, self._name, self._more = fail, rest, name, more
        self._tries: Counter[tuple[Hashable, int]] = Counter()
        self._busy = 0
        self._foreseen: dict[Hashable, T] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of tasks that wait for a lane."""
        return len(self._waiting)

    @property
    def finished(self) -> bool:
        """Return True if no task waits, none is under way and none is added any more."""
        return not (self._waiting or self._busy or self._more)

    @property
    def takes_more(self) -> bool:
        """Return True while tasks may be added."""
        return self._more

    def ahead(self, lane: Hashable, task: T) -> T | None:
        """Return the task that a lane can prepare beside the one that it was given; None if there is none.

        A task that broke a lane before has its next attempt by itself: what was prepared beside it may have been the
        cause, as where memory is short.
        """
        return None if self._broke_a_lane(task) else self._foresee(lane)

    def _foresee(self, lane: Hashable) -> T | None:
        """Return the task that a lane will be given next; None if there is none.

        Another lane is given it only where no other task waits.
        """
        others = [task for other, task in self._foreseen.items() if other != lane]
        task = self._foreseen.pop(lane, None)
        if task is None or not _among(task, self._waiting):
            task = next((one for one in self._waiting if not _among(one, others)), None)
        if task is not None:
            self._foreseen[lane] = task
        return task

    def add(self, task: T) -> None:
        """Put a task behind all others."""
        assert self._more, "the queue is closed"
        self._waiting.append(task)
        self._changed.set()

    def close(self) -> None:
        """Take no more tasks: lanes end when those that are there are done."""
        self._more = False
        self._changed.set()

    def _broke_a_lane(self, task: T) -> bool:
        return any(tries for (name, _), tries in self._tries.items() if name == self._name(task))

    async def next(self, lane: Hashable = None) -> T | None:
        """Return the next task of a lane, waiting while one may be added or come back; None when all are done."""
        while not self._waiting and (self._busy or self._more):
            self._changed.clear()
            await self._changed.wait()
        if not self._waiting:
            return None
        self._busy += 1
        task = self._foresee(lane)
        self._foreseen.pop(lane, None)
        if task is None:
            return self._waiting.popleft()  # another lane prepares it, but is not free yet
        del self._waiting[next(place for place, one in enumerate(self._waiting) if one is task)]
        return task

    async def rest(self, seconds: float) -> None:
        """Wait so long, or until all tasks are done."""
        until = asyncio.get_running_loop().time() + seconds
        while not self.finished and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, _LOOK_SECONDS))

    async def attempt(self, task: T, work: Awaitable[None]) -> bool:
        """Await the work on a task that `next` gave; return False if its lane cannot be used any more.

        Raises:
            LaneUnfitError: the lane is to be left alone; the task waits for another one.
        """
        try:
            await work
        except LaneUnfitError:
            self._waiting.appendleft(task)
            raise
        except Exception as error:  # a failure on one task must not stop the others
            return self._broke(task, as_ours(error))
        finally:
            self._busy -= 1
            self._changed.set()
        return True

    def _broke(self, task: T, error: KernelLspError) -> bool:
        suspect, others = self._rest(task)
        if not isinstance(error, RunnerError):  # the task itself is at fault, with all that is left of it
            for part in filter(None, (suspect, others)):
                self._fail(part, error)
            return True
        if others is not None:
            self._waiting.appendleft(others)
        if suspect is not None:
            most = LANES_LOST if isinstance(error, LaneLostError) else ATTEMPTS
            attempts = self._name(suspect), most
            self._tries[attempts] += 1
            if self._tries[attempts] < most:
                self._waiting.appendleft(suspect)  # by itself: if it breaks another lane, it alone is given up
            else:
                self._fail(suspect, error)
        return False
