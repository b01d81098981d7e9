"""Watch for file changes that no editor reports, with watchdog, in its own threads."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernel_lsp.source.files import source_suffixes

if TYPE_CHECKING:
    from watchdog.events import FileSystemEventHandler
    from watchdog.observers.api import BaseObserver

log = logging.getLogger("kernel-lsp")

_SETTLING = 0.1  # seconds over which changes are collected: a checkout changes many files at once


class Watcher:
    """Watches folders with watchdog, and reports changed files in the event loop."""

    def __init__(self, changed: Callable[[list[Path]], None]) -> None:
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._gathered: set[Path] = set()
        self._observer: BaseObserver | None = None
        self._watches: dict[Path, Any] = {}

    def watch(self, folders: Iterable[Path], *, recursive: bool = True) -> None:
        """Watch these folders too. Slow: call it in a thread."""
        from watchdog.observers import Observer

        if self._observer is None:
            self._observer = Observer()
            self._observer.start()
        for folder in folders:
            try:
                handler = cast("FileSystemEventHandler", _Events(self._event))
                self._watches[folder] = self._observer.schedule(handler, str(folder), recursive=recursive)
            except OSError as error:  # the folder is gone, or the system has no watches left
                log.warning("%s is not watched: %s", folder, error)

    def unwatch(self, folders: Iterable[Path]) -> None:
        """Stop watching these folders."""
        for folder in folders:
            if self._observer is not None and (watch := self._watches.pop(folder, None)) is not None:
                self._observer.unschedule(watch)

    async def close(self) -> None:
        """Stop watching."""
        if self._observer is not None:
            self._observer.stop()
            await asyncio.to_thread(self._observer.join, 1.0)

    def _event(self, path: Path) -> None:
        """Handle an event in watchdog's thread."""
        if path.suffix in (*source_suffixes(), ".toml", ".json"):
            self._loop.call_soon_threadsafe(self._gather, path)

    def _gather(self, path: Path) -> None:
        if not self._gathered:
            self._loop.call_later(_SETTLING, self._tell)
        self._gathered.add(path)

    def _tell(self) -> None:
        paths, self._gathered = sorted(self._gathered), set()
        self._changed(paths)


class _Events:
    """The interface that watchdog calls, which is only `dispatch`."""

    def __init__(self, tell: Callable[[Path], None]) -> None:
        self._tell = tell

    def dispatch(self, event: Any) -> None:
        """Handle one change; a move has two paths."""
        if event.is_directory or event.event_type in ("opened", "closed_no_write"):
            return
        for name in (event.src_path, getattr(event, "dest_path", "")):
            if name:
                self._tell(Path(name))
