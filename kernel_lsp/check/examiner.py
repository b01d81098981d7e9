"""Where files are examined and timed: with workers of this machine, or in the lanes of a pool."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from kernel_lsp.check.dependencies import Dependencies
from kernel_lsp.check.examination import examine, unexamined
from kernel_lsp.check.lane import CheckCalls, request_of
from kernel_lsp.check.record import CaseTime, CheckStep, Examination, OnStep
from kernel_lsp.check.timed import time_alone
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu, target_device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import RunnerError
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.emulation import Emulation
from kernel_lsp.judge.session import pool_on
from kernel_lsp.runner.pool import Pool

_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of examining a file, its runs on the emulator, if any, and seconds spent waiting for a free worker."""

    examination: Examination
    emulation: Emulation | None
    waited: float


class Examiner(Protocol):
    """Examines files and takes times."""

    @property
    def gpu(self) -> Gpu | None:
        """Return the GPU, or one of its kind; None for the emulator."""
        ...

    async def examine(self, depends: Dependencies, *, run: bool, on_step: OnStep) -> Examined:
        """Return the result of examining a file; `run` False stops after building.

        Raises:
            RunnerError: workers cannot be started.
        """
        ...

    async def time(self, depends: Dependencies, on_step: OnStep) -> tuple[CaseTime, ...]:
        """Return the times of a file that runs, taken while nothing else of this check runs on that GPU."""
        ...

    async def close(self) -> None:
        """End what was started."""
        ...


class ExaminerHere:
    """Examines on one GPU of this machine, or its emulator, with workers that stay warm from one file to the next.

    Args:
        settings: in force for all files.
        pool: workers to use, which the caller ends; by default it starts its own.
    """

    def __init__(self, settings: Settings, pool: Pool | None = None) -> None:
        self._settings, self._pool, self._lent = settings, pool, pool is not None
        self.gpu = choose_gpu(settings.gpu)
        self._builders: Builders | None = None
        self._room, self._timing = asyncio.Semaphore(_AT_ONCE), asyncio.Lock()

    async def examine(self, depends: Dependencies, *, run: bool, on_step: OnStep) -> Examined:
        """Return the result of examining a file; see `Examiner.examine`."""
        asked = time.perf_counter()
        async with self._room:
            waited = time.perf_counter() - asked
            pool = self._workers()
            if self._builders is None:
                self._builders = Builders(pool, self._settings, target_device(self.gpu, self._settings.arch))
            examination, emulation = await examine(
                depends.source,
                depends.workload,
                pool,
                self._builders,
                self._settings,
                self.gpu,
                run=run,
                on_step=on_step,
            )
        return Examined(examination, emulation, waited)

    async def time(self, depends: Dependencies, on_step: OnStep) -> tuple[CaseTime, ...]:
        """Return the times of a file that runs, taken while no other is examined."""
        assert depends.workload is not None, "only what has run is timed"
        assert self.gpu is not None, "only a GPU is timed"
        on_step(CheckStep("timing", 1.0))
        async with self._alone():
            return await time_alone(self._workers(), depends.source, depends.workload, self._settings, self.gpu)

    async def close(self) -> None:
        """End the workers, unless they are the caller's."""
        if self._pool is not None and not self._lent:
            await self._pool.close()

    def _workers(self) -> Pool:
        self._pool = self._pool or pool_on(self.gpu, self._settings)
        return self._pool

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Keep other files from being examined within the context, since their runs would disturb this file's times."""
        async with self._timing, AsyncExitStack() as stack:
            for _ in range(_AT_ONCE):
                await stack.enter_async_context(self._room)
            yield


class ExaminerOnLanes:
    """Examines in the lanes of a pool, each of which does one thing at a time.

    Args:
        calls: of the lanes, within whose block it is used.
    """

    def __init__(self, calls: CheckCalls) -> None:
        self._calls = calls
        self.gpu = next(iter(calls.pool.gpus), None)

    async def examine(self, depends: Dependencies, *, run: bool, on_step: OnStep) -> Examined:
        """Return the result of examining a file; one that its lanes do not survive could not be run."""
        asked = time.perf_counter()
        on_step(CheckStep("waiting for a lane"))
        try:
            result = await self._calls.ask(request_of(depends, run=run))
        except RunnerError as error:
            return Examined(unexamined(depends.source, error), None, 0.0)
        assert result.examination is not None, "no times were asked for"
        return Examined(result.examination, result.emulation, time.perf_counter() - asked - result.seconds)

    async def time(self, depends: Dependencies, on_step: OnStep) -> tuple[CaseTime, ...]:
        """Return the times of a file that runs; none where its lanes do not survive that."""
        on_step(CheckStep("timing", 1.0))
        try:
            return (await self._calls.ask(request_of(depends, run=True, timed=True))).times
        except RunnerError:
            return ()

    async def close(self) -> None:
        """Do nothing: the lanes end with the pool."""
