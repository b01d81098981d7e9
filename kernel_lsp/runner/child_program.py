"""A program that a pool has started, beside its workers: it is told something, and says something."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from kernel_lsp.runner.sessions import kill_session
from kernel_lsp.runner.spans import WorkSpan

_MOST_SAID = 16 << 20  # bytes that are read of its output


class ChildProgram:
    """A running program. End it, or kill it: its folder goes with it.

    Attributes:
        pid: of its first process, which leads a session.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, folder: Path, ended: Callable[[WorkSpan | None], None]
    ) -> None:
        self.pid = process.pid
        self._process, self._folder, self._ended = process, folder, ended
        self._said = b""
        self._told_at: int | None = None
        self._is_over = False

    async def says(self, word: bytes, *, deadline: float) -> bytes | None:
        """Return the rest of the first line that begins with a word, or None if it ends or takes too long before."""
        assert self._process.stdout is not None, "it was asked for"
        with contextlib.suppress(TimeoutError, ValueError):  # a line may be longer than what is read ahead
            async with asyncio.timeout(deadline):
                while line := await self._process.stdout.readline():
                    self._said += line
                    if line.startswith(word):
                        return line.removeprefix(word).strip()
        return None

    async def end(self, told: str = "", *, deadline: float) -> tuple[int | None, str]:
        """Tell it something and wait for its end; return its exit status and output.

        The status is None if it was killed after `deadline` seconds. Its standard input stays open until then.
        """
        assert self._process.stdin is not None, "it was asked for"
        assert self._process.stdout is not None, "it was asked for"
        status: int | None = None
        self._told_at = time.monotonic_ns()
        try:
            async with asyncio.timeout(deadline):
                if told:
                    self._process.stdin.write(told.encode())
                more = b"."
                while more and len(self._said) < _MOST_SAID:
                    more = await self._process.stdout.read(1 << 16)
                    self._said += more
                status = await self._process.wait() if not more else None
        except TimeoutError:
            pass
        finally:
            await self.kill()
        return status, self._said.decode(errors="replace")

    async def kill(self) -> None:
        """End it and all that it started, and remove its folder; does nothing the second time."""
        if self._is_over:
            return
        self._is_over = True
        kill_session(self.pid)
        self._ended(None if self._told_at is None else WorkSpan("run", self._told_at, time.monotonic_ns()))
        await self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
