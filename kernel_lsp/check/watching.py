"""Checks files below a folder as they change."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from watchdog.events import FileClosedNoWriteEvent, FileOpenedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from kernel_lsp.check.baseline import BASELINE
from kernel_lsp.check.files import is_kernel_file, kernel_files_among
from kernel_lsp.check.record import FileReport
from kernel_lsp.errors import ConfigurationError, SourceError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import HEADERS, read_source, source_suffixes
from kernel_lsp.source.language import suffixes

QUIET_SECONDS = 0.1
"""A burst of events ends when there was none for so long: editors save in several steps."""
_LONGEST_SECONDS = 1.0
_BESIDE = ("_workload", "_problem")


class Checks(Protocol):
    """The part of `Checker` that the watcher uses."""

    @property
    def reads(self) -> Mapping[Path, frozenset[Path]]:
        """Return, for each file checked, all files that its check read, without links."""
        ...

    async def check(self, source: SourceFile) -> FileReport:
        """Return the report on one kernel file."""
        ...


@dataclass(frozen=True)
class FolderStatus:
    """The state of the kernel files below a folder.

    Attributes:
        reports: the last report on each kernel file.
        texts: the texts that were checked.
        checking: files that are being checked.
        problem: why the last changed file could not be checked; None if it could.
    """

    reports: Mapping[Path, FileReport] = field(default_factory=dict[Path, FileReport])
    texts: Mapping[Path, str] = field(default_factory=dict[Path, str])
    checking: frozenset[Path] = frozenset()
    problem: str | None = None


async def watch_folder(folder: Path, checker: Checks, on_change: Callable[[FolderStatus], None]) -> None:
    """Check all kernel files below `folder`, then those that a change affects, until cancelled.

    A change affects a kernel file if it is of that file or of one that its check has read: its workload, a header, a
    module. A check whose files change while it runs is restarted. A deleted file is dropped; one that
    cannot be read, as when it is half written, keeps its last report until it can.

    Raises:
        RunnerError: workers cannot be started.
    """
    async with _changes(folder) as changes:
        watch = _Watch(folder, checker, on_change, changes)
        changed = asyncio.create_task(changes.next())
        try:
            watch.start(kernel_files_among([folder]))
            while True:
                await asyncio.wait({changed, *watch.running.values()}, return_when=asyncio.FIRST_COMPLETED)
                watch.collect()
                if changed.done():
                    watch.take(changed.result())
                    changed = asyncio.create_task(changes.next())
        finally:
            changed.cancel()
            await watch.close()


class _Watch:
    """The files of one folder, with a task for each running check."""

    def __init__(
        self, folder: Path, checker: Checks, on_change: Callable[[FolderStatus], None], changes: "_Changes"
    ) -> None:
        self._folder, self._checker, self._on_change, self._changes = folder, checker, on_change, changes
        self._reports: dict[Path, FileReport] = {}
        self._texts: dict[Path, str] = {}
        self._problem: str | None = None
        self.running: dict[Path, asyncio.Task[FileReport]] = {}

    def start(self, sources: Iterable[SourceFile]) -> None:
        """Start checks of these files, in place of running ones."""
        for source in sources:
            if (before := self.running.pop(source.path, None)) is not None:
                before.cancel()
            self._texts[source.path] = source.text
            self.running[source.path] = asyncio.create_task(self._checker.check(source))
        self._show()

    def collect(self) -> None:
        """Take over the results of finished checks."""
        done = [path for path, task in self.running.items() if task.done()]
        for path in done:
            task = self.running.pop(path)
            try:
                self._reports[path] = task.result()
                self._problem = None
            except ConfigurationError as error:
                self._problem = str(error)
            self._changes.follow(self._checker.reads.get(path, frozenset()))
        if done:
            self._show()

    def take(self, changed: frozenset[Path]) -> None:
        """Start checks of the files that these changes affect."""
        concerned = {path: None for path in self._known() if self._concerns(path, changed)}
        concerned |= {path: None for path in sorted(self._own(path) for path in changed) if path.suffix in suffixes()}
        fresh: list[SourceFile] = []
        for path in concerned:
            if not path.exists():
                self._drop(path)
                continue
            try:
                source = read_source(path)
            except SourceError:  # half written: another event will follow
                continue
            if is_kernel_file(source):
                fresh.append(source)
            else:
                self._drop(path)
        self.start(fresh)

    async def close(self) -> None:
        """Cancel the running checks."""
        for task in self.running.values():
            task.cancel()
        await asyncio.gather(*self.running.values(), return_exceptions=True)

    def _known(self) -> list[Path]:
        return sorted({*self._reports, *self.running})

    def _concerns(self, path: Path, changed: frozenset[Path]) -> bool:
        beside = path.resolve().parent
        return any(
            one in self._checker.reads.get(path, frozenset())
            or (one.parent == beside and (one.stem.endswith(_BESIDE) or one.suffix in HEADERS))  # may be new
            or one.match(f"*/{BASELINE}")
            for one in changed
        )

    def _own(self, path: Path) -> Path:
        """Return a changed path as the user writes it."""
        root = self._folder.resolve()
        return self._folder / path.relative_to(root) if path.is_relative_to(root) else path

    def _drop(self, path: Path) -> None:
        if (task := self.running.pop(path, None)) is not None:
            task.cancel()
        self._reports.pop(path, None)
        self._texts.pop(path, None)

    def _show(self) -> None:
        reports = {path: self._reports[path] for path in sorted(self._reports)}
        self._on_change(FolderStatus(reports, dict(self._texts), frozenset(self.running), self._problem))


class _Changes(FileSystemEventHandler):
    """Collects changed files in the observer's thread and passes them to the event loop in bursts."""

    def __init__(self, observer: BaseObserver, folder: Path) -> None:
        self._observer, self._root = observer, folder.resolve()
        self._loop = asyncio.get_running_loop()
        self._heard: set[Path] = set()
        self._wake = asyncio.Event()
        self._followed: set[Path] = set()

    def follow(self, files: Iterable[Path]) -> None:
        """Also watch the folders of files elsewhere."""
        for parent in {file.parent for file in files}:
            if parent not in self._followed and not parent.is_relative_to(self._root):
                self._followed.add(parent)
                with contextlib.suppress(OSError):
                    self._observer.schedule(self, str(parent))

    async def next(self) -> frozenset[Path]:
        """Return the files of the next burst, without links."""
        await self._wake.wait()
        latest = self._loop.time() + _LONGEST_SECONDS
        while self._wake.is_set() and self._loop.time() < latest:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._wake.wait()
        self._wake.clear()
        heard, self._heard = frozenset(self._heard), set()
        return heard

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Handle an event, in the observer's thread."""
        if event.is_directory or isinstance(event, FileOpenedEvent | FileClosedNoWriteEvent):
            return
        paths = [Path(os.fsdecode(path)) for path in (event.src_path, event.dest_path) if path]
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._hear, [path for path in paths if self._matters(path)])

    def _hear(self, paths: list[Path]) -> None:
        if paths:
            self._heard.update(path.resolve() for path in paths)
            self._wake.set()

    def _matters(self, path: Path) -> bool:
        if path.match(f"*/{BASELINE}"):
            return True
        inside = path.relative_to(self._root).parts if path.is_relative_to(self._root) else path.parts[-1:]
        return path.suffix in source_suffixes() and not any(part.startswith(".") for part in inside)


@asynccontextmanager
async def _changes(folder: Path) -> AsyncGenerator[_Changes]:
    observer = Observer()
    changes = _Changes(observer, folder)
    observer.schedule(changes, str(folder.resolve()), recursive=True)
    observer.start()
    try:
        yield changes
    finally:
        observer.stop()
        await asyncio.to_thread(observer.join)
