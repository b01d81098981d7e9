"""Turns of sessions that share a GPU in one process: while one of them times, the work of all others waits.

A session that opens draws inputs, runs its baseline and compares, request by request. Each request is a *piece*: any
number of them run side by side, beside the checks of a candidate too. Timing is done *alone*: it waits until the pieces
under way have ended, and later ones wait for it. Choices that a clock makes without timing, such as how many further
inputs there is time for, are made in *quiet*: no candidate of another session is judged then, which could keep the GPU
busy so that less is asked of the next one.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Never

from kernel_lsp.runner.messages import Answer, Request
from kernel_lsp.runner.worker import Worker


@dataclass(eq=False)
class GpuTurns:
    """The turns of all sessions on one GPU.

    Attributes:
        measuring: held while a candidate is judged, or races, and by a session that opens in quiet.
        alone: the session that holds the GPU alone.
        depth: how many times over.
        asked: how many wait for that.
        pieces: under way.
        changed: set whenever one of these has changed.
        free: bytes of the GPU's memory that were free before the first of the open sessions.
        reserved: by session that is open, or opens now, bytes of these that it may come to take, or 0.
    """

    measuring: asyncio.Lock = field(default_factory=asyncio.Lock)
    alone: "SessionTurns | None" = None
    depth: int = 0
    asked: int = 0
    pieces: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    free: int = 0
    reserved: "dict[SessionTurns, int]" = field(default_factory=lambda: dict[SessionTurns, int]())

    async def until(self, free: Callable[[], bool]) -> None:
        """Wait until something is true."""
        while not free():
            self.changed.clear()
            await self.changed.wait()


class SessionTurns:
    """The turns of one session; `waited_s` are the seconds for which it waited for one.

    Args:
        turns: of its GPU; None where nothing is timed and nobody waits.
    """

    def __init__(self, turns: GpuTurns | None) -> None:
        self._turns = turns
        self.waited_s = 0.0
        self._opening = self._quiet = False

    def enter(self) -> None:
        """Count the session among those that are open, until `leave`."""
        if self._turns is not None:
            self._turns.reserved[self] = 0

    @property
    def has_company(self) -> bool:
        """Return True while other sessions are open; what a session keeps ready would hold these up.

        A context on a GPU takes longer the more there are: 0.12 s on an H200, 0.33 s beside 28.
        """
        return self._turns is not None and bool(self._turns.reserved.keys() - {self})

    def clock(self) -> float:
        """Return seconds that pass only while the session does not wait for its turn."""
        return time.perf_counter() - self.waited_s

    @asynccontextmanager
    async def piece(self) -> AsyncGenerator[None]:
        """Hold a piece of the session's work, once no other session times or waits to."""
        if (turns := self._turns) is None:
            yield
            return
        with self._waiting():
            await turns.until(lambda: turns.alone is self or (turns.alone is None and not turns.asked))
        turns.pieces += 1
        try:
            yield
        finally:
            turns.pieces -= 1
            turns.changed.set()

    async def ask(self, worker: Worker, request: Request[Never, Answer], deadline: float) -> Answer:
        """Return a worker's answer to a request, as a piece; see `Worker.ask`."""
        async with self.piece():
            return await worker.ask(request, deadline=deadline)

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Hold the GPU alone, once all pieces have ended; it may be held again within."""
        if (turns := self._turns) is None:
            yield
            return
        turns.asked += 1
        try:
            with self._waiting():
                await turns.until(lambda: turns.alone is self or (turns.alone is None and not turns.pieces))
            turns.alone = self
            turns.depth += 1
        finally:
            turns.asked -= 1
            turns.changed.set()
        try:
            yield
        finally:
            turns.depth -= 1
            if not turns.depth:
                turns.alone = None
            turns.changed.set()

    @contextmanager
    def opening(self) -> Generator[None]:
        """Open the session in the block, of which a last part may be in quiet."""
        self._opening = True
        try:
            yield
        finally:
            self._opening = False
            if self._quiet and self._turns is not None:
                self._quiet = False
                self._turns.measuring.release()

    @property
    def disturbed(self) -> bool:
        """Return True while the session opens and a candidate of another one is judged."""
        return self._turns is not None and self._opening and not self._quiet and self._turns.measuring.locked()

    async def quieten(self) -> None:
        """Wait until no candidate is judged, and keep it so until the session is open."""
        if self._turns is not None and self._opening and not self._quiet:
            with self._waiting():
                await self._turns.measuring.acquire()
            self._quiet = True

    @property
    def others(self) -> tuple[int, int] | None:
        """Return bytes of memory that were free before other sessions, and those that they reserve; None if none do."""
        if self._turns is None:
            return None
        taken = sum(n for one, n in self._turns.reserved.items() if one is not self)
        return (self._turns.free, taken) if taken else None

    def reserve(self, nbytes: int, free: int) -> None:
        """Reserve memory until `leave`; `free` is what is free without all sessions, in bytes."""
        if self._turns is not None and nbytes:
            self._turns.free = free
            self._turns.reserved[self] = nbytes

    def leave(self) -> None:
        """Give back what is reserved, and count the session no more."""
        if self._turns is not None:
            self._turns.reserved.pop(self, None)

    @contextmanager
    def _waiting(self) -> Generator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.waited_s += time.perf_counter() - began
