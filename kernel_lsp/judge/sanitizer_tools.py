"""Run compute-sanitizer's tools on recorded launches; processes that wait for such are kept ready where there is room.

A tool's process takes a second or two until it has a context on the GPU, and longer while others keep the GPU busy.
"""

import asyncio
import contextlib
import os
import sys
from functools import cached_property
from pathlib import Path

from kernel_lsp import policy, runner
from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.device.nvml import Gpu, free_bytes
from kernel_lsp.errors import RunnerError
from kernel_lsp.runner.child_program import ChildProgram
from kernel_lsp.runner.pool import Pool
from kernel_lsp.runner.shield import start
from kernel_lsp.runner.turns import SessionTurns

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND = 86
"""The exit status that a tool is told to return when it finds an error."""
_REPLAY = Path(runner.__file__).parent / "workers" / "replay.py"
_READY = b"ready "  # and its process id


class SanitizerTools:
    """The tools for one session's judgements, which has these turns. Close them after use."""

    def __init__(self, pool: Pool, turns: SessionTurns) -> None:
        self._pool, self._turns = pool, turns
        self._waiting: dict[str, asyncio.Task[ChildProgram | None]] = {}

    @cached_property
    def _program(self) -> Path | None:
        return find_tool("compute-sanitizer")

    @property
    def installed(self) -> bool:
        """True where there is a compute-sanitizer."""
        return self._program is not None

    def may_wait(self, gpu: Gpu) -> bool:
        """Return True where processes that wait take little from others: many cores, and much free memory."""
        return (
            self.installed
            and len(os.sched_getaffinity(0)) >= policy.READY_TOOLS_CORES
            and free_bytes(gpu) >= policy.READY_TOOLS_FREE_BYTES
        )

    def refill(self) -> None:
        """Start the tools that are not started yet; not to be called while anything is timed."""
        for tool in TOOLS if self.installed else ():
            if tool not in self._waiting:
                self._waiting[tool] = start(self._set_up(tool))

    async def settle(self) -> None:
        """Wait until no tool is being started: that takes the GPU's time."""
        if self._waiting:
            await asyncio.wait(self._waiting.values())

    async def run(self, tool: str, file: Path, seconds: float) -> tuple[int | None, str]:
        """Run a tool on the launches in a file; return its exit status, None if it took longer, and its output.

        One that fails otherwise than by what it finds has a second try, in a process that did not wait.
        """
        waiting = self._waiting.pop(tool, None)
        if waiting is not None and (ready := await waiting) is not None:
            ended = await ready.end(f"{file}\n", deadline=seconds)
            if ended[0] in (None, 0, FOUND):
                return ended
        fresh = await self._pool.program([*self._command(tool), str(file)])
        return await fresh.end(deadline=seconds)

    async def close(self) -> None:
        """End the processes that wait, and those that are being started."""
        waiting, self._waiting = self._waiting, {}
        for task in waiting.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                if (program := await task) is not None:
                    await program.kill()

    async def _set_up(self, tool: str) -> ChildProgram | None:
        """Return a process of a tool that has a context; None where it gets none."""
        async with self._turns.piece():
            return await self._ready(tool)

    async def _ready(self, tool: str) -> ChildProgram | None:
        try:
            program = await self._pool.program(self._command(tool))
        except (OSError, RunnerError):
            return None
        try:
            pid = await program.says(_READY, deadline=policy.SANITIZER_SECONDS)
        except asyncio.CancelledError:
            await program.kill()
            raise
        if pid is None or not pid.isdigit():
            await program.kill()
            return None
        self._pool.count_in(int(pid))
        return program

    def _command(self, tool: str) -> list[str]:
        command = [str(self._program), "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "64"]
        if tool == "memcheck":
            command += ["--padding", str(policy.SANITIZER_PADDING_BYTES)]
        return [*command, sys.executable, "-I", str(_REPLAY)]
