"""Sessions that stay open, so that many tests can ask about the same kernel file without measuring it anew."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.judge.pipeline import Session, open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.runner.pool import Pool

EXAMPLES = Path(__file__).parents[2] / "examples"


def edited(text: str, *changes: tuple[str, str]) -> str:
    """The text with each first string, which must stand there once, replaced by the second."""
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def processes_below(folder: Path) -> list[int]:
    """Process ids of nurseries, and of workers forked from them, that work in a folder below `folder`."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:  # it has ended since
            continue
        if b"kernel_lsp.runner.nursery" in words and any(word.startswith(bytes(folder)) for word in words):
            found.append(int(entry.name))
    return found


class Judges:
    """Sessions by kernel file, all on one event loop and one pool of workers. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(paths=PathSettings(data=folder / "data", cache=folder / "cache"))
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._sessions: dict[Path, Session] = {}
        self._pool = _LastingPool()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._runner:
            self._runner.run(self._open.aclose())
            self._runner.run(self._pool.close())

    def session(self, path: Path) -> Session:
        """The session of a kernel file; opened when it is first asked for."""
        if path not in self._sessions:
            opening = self._open.enter_async_context(open_session(make_target(path), self.settings, self._pool))
            self._sessions[path] = self._runner.run(opening)
        return self._sessions[path]

    def judge(self, path: Path, text: str, launch: str | None = None) -> Verdict:
        """The verdict on a variant of a kernel file, and of its workload file where `launch` gives one."""
        session = self.session(path)
        return self._runner.run(session.judge(session.target.version(text, "variant", "user", launch)))


class _LastingPool(Pool):
    """Outlives each of the sessions that share it."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return
